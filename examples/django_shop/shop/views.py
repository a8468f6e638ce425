"""Place an order, and see what became of its receipt."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import send_receipt


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order, and the task that sends its receipt: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(user=request.POST["user"])
        order.receipt_task = send_receipt.enqueue(order.pk).id
        order.save(update_fields=["receipt_task"])
        if request.POST.get("card") == "declined":
            raise ValueError("the card was declined")
    return JsonResponse({"order": order.pk, "task": order.receipt_task}, status=201)


def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    """Show an order with the state of its task."""
    order = get_object_or_404(Order, pk=order_id)
    result = send_receipt.get_result(order.receipt_task)
    return JsonResponse({"receipt": order.receipt, "status": result.status, "attempts": result.attempts})
