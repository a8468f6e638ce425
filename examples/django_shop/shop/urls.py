"""The pages of the shop. The console is for users with the permission `redrive.view_console`."""

from django.contrib import admin
from django.urls import include, path

from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("redrive/", include("redrive.django.urls")),
    path("orders/", views.place_order),
    path("orders/<int:order_id>/", views.show_order),
]
