"""Settings of the shop. The last part is Redrive's."""

import os
from pathlib import Path

from redrive import RetryPolicy

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example, and never for production")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
ASGI_APPLICATION = "shop.asgi.application"
STATIC_URL = "static/"
LOGIN_URL = "admin:login"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "redrive.django",
    "shop",
]

TASKS = {
    "default": {
        "BACKEND": "redrive.django.Backend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            # Three attempts, after 0.1 s and 0.2 s, so that the example ends soon.
            "retry": RetryPolicy(3, backoff_base=0.1, backoff_max=1, jitter=0),
            "tasks": {"shop.tasks.send_receipt": {"concurrency": 4}},
        },
    }
}
