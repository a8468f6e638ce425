"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, verbose_name="ID", auto_created=True)),
                ("user", models.CharField(max_length=100)),
                ("receipt", models.CharField(blank=True, max_length=100)),
                ("receipt_task", models.CharField(blank=True, max_length=64)),
            ],
        ),
    ]
