"""Alerts of `redrive watch`: the findings of the doctor, sent to webhooks and Slack."""
