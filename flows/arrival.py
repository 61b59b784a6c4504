"""The arrival of new data: the event that tells of it, and the trigger by which it starts a retraining."""

from typing import Any

from flows import display
from flows.options import Json
from tasks.errors import ConfigError
from tasks.secrets import scrub

EVENT = "millstream.data.updated"


def trigger(name: str) -> dict[str, Any]:
    """Returns the trigger of a deployment in prefect.yaml that starts it when new data of a config are told of."""
    return {
        "name": f"{name}-data-updated",
        "description": f"`millstream notify-data {name}`",
        "type": "event",
        "expect": [EVENT],
        "match": {"prefect.resource.id": _resource_id(name)},
    }


def notify_data(name: str, /, *, json: Json = False) -> None:
    """Tells the Prefect server that new data have come, so that the retraining of their config begins.

    Example: millstream notify-data digits

    Parameters
    ----------
    name
        Name of the config; it has a deploy.retraining.
    """
    from prefect.settings import PREFECT_API_URL

    if "/" in name:
        raise ConfigError(f"{name}: must be the name of a config, such as digits")
    url, deployment = PREFECT_API_URL.value(), f"retraining/{name}-retraining"
    if url is None:
        raise ConfigError(
            "PREFECT_API_URL: is not set; set it to the server that is to be told, as `millstream up` says"
        )
    where = scrub(url)
    event_id = _send(name, deployment, where)
    if json:
        display.print_json({"event": EVENT, "id": event_id, "deployment": deployment})
    else:
        display.note(f"{name}: {EVENT} is told to {where}; it starts {deployment}, unless that is at work")


def _send(name: str, deployment: str, where: str) -> str:
    """Returns the id of the event once the server has it; raises ConfigError if it never does, or nobody listens."""
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.events import Event, Resource
    from prefect.exceptions import ObjectNotFound

    resource = Resource({"prefect.resource.id": _resource_id(name), "prefect.resource.name": name})
    event = Event(event=EVENT, resource=resource)
    try:
        with get_client(sync_client=True) as client:
            problem = client.api_healthcheck()
            if problem is None:
                client.read_deployment_by_name(deployment)
                # Not emit_event, which returns before the server has it, and says nothing if it never gets it.
                client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except ObjectNotFound:
        raise ConfigError(
            f"{name}: {where} has no deployment {deployment}; give the config a deploy.retraining, then `millstream "
            "deployments --write` and `prefect deploy --all`"
        ) from None
    except HTTPError as error:
        problem = error
    if problem is not None:
        raise ConfigError(
            f"PREFECT_API_URL={where}: did not take the event ({scrub(str(problem))}); start a server with "
            "`millstream up`, or correct the URL"
        )
    return str(event.id)


def _resource_id(name: str) -> str:
    return f"millstream.data.{name}"


COMMANDS = (notify_data,)
