"""Alerts: one Prefect automation that tells a webhook which flow run failed, where its log is and what to do.

`millstream up` runs this file as a program against its Prefect server, with the webhook in the environment: it is a
secret, and a command line can be read by all.
"""

import os

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

NAME = "millstream-alerts"  # of the automation, and of the block that keeps the webhook
STATES = ("Failed", "Crashed", "TimedOut", "Late")

# What a chat takes: Slack, Mattermost, Teams and their like show `text`.
_PAYLOAD = """\
{%- set state = event.resource['prefect.state-name'] -%}
{%- set name = deployment.name or flow_run.name -%}
{%- set text -%}
millstream: flow run {{ flow_run.name }}{% if deployment.name %} of {{ deployment.name }}{% endif %} is {{ state }}.
{% if event.resource['prefect.state-message'] %}{{ event.resource['prefect.state-message'] }}
{% endif -%}
Log: {{ flow_run|ui_url }}
Logs of its workers: WORKSPACE/runs/, see `millstream runs`
{% if state == 'Late' -%}
What to do: no worker has taken it; `millstream doctor` says why.
{%- elif state == 'Crashed' -%}
What to do: its process died. Start it again and it goes on where it stopped: \
`prefect deployment run '{{ flow.name }}/{{ name }}'`
{%- else -%}
What to do: mend what the message names, then start it again and it goes on where it stopped: \
`prefect deployment run '{{ flow.name }}/{{ name }}'`
{%- endif %}
{%- endset -%}
{"text": {{ text|tojson }}, "state": {{ state|tojson }}, "flow_run": {{ flow_run.name|tojson }}}
"""


def create_alerts(webhook: str, workspace: str) -> None:
    """Makes the automation on the Prefect server of this environment, or changes it to this webhook."""
    block_id = Webhook(url=webhook, headers={"Content-Type": "application/json"}).save(NAME, overwrite=True)
    automation = AutomationCore(
        name=NAME,
        description="Calls the webhook of MILLSTREAM_ALERT_WEBHOOK when a flow run fails, crashes or is late.",
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={f"prefect.flow-run.{state}" for state in STATES},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            threshold=1,
        ),
        actions=[CallWebhook(block_document_id=block_id, payload=_PAYLOAD.replace("WORKSPACE", workspace))],
    )
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(NAME)
        if found:
            client.update_automation(found[0].id, automation)
        else:
            client.create_automation(automation)


if __name__ == "__main__":
    create_alerts(os.environ["MILLSTREAM_ALERT_WEBHOOK"], os.environ["MILLSTREAM_WORKSPACE"])
