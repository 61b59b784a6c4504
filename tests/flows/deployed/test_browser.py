"""What a person sees: the Prefect form, the MLflow run with its plots and model, two runs side by side.

`SCREENSHOTS=flows/images make prove` renews the pictures of flows/README.md.
"""

import json
import os
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser import keep_picture, open_browser

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400)]
GROUPS = ("data", "feed", "model", "train", "distribute", "evaluate", "export", "promote", "tracking")


@pytest.fixture(scope="module")
def page():
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


@pytest.fixture
def show(page, tmp_path):
    """Keeps a picture of the page as it is now."""

    def show(name: str) -> None:
        for assistant in page.get_by_role("button", name="Close").all():
            assistant.click()  # it takes a quarter of the page
        keep_picture(page.screenshot(), Path(os.environ.get("SCREENSHOTS") or tmp_path) / f"{name}.png")

    return show


@pytest.fixture(scope="module")
def other(stack, completed):
    """A second run, with other settings."""
    flow_run_id = stack.begin("digits", "train.total=4 epochs", "train.seed=11", "feed.global_batch_size=128")
    assert stack.ends(flow_run_id)["type"] == "COMPLETED"
    return stack.run_of(flow_run_id)


def submit(page) -> None:
    """Sends the form as a person does, who tries again when the server's sqlite database was locked."""
    for _ in range(20):
        with page.expect_response("**/create_flow_run") as answered:
            page.get_by_role("button", name="Submit").click()
        if answered.value.status != HTTPStatus.SERVICE_UNAVAILABLE:
            break
        page.wait_for_timeout(500)
    assert answered.value.ok, answered.value.text()


def mlflow_page(stack, route: str) -> str:
    return f"{stack.mlflow_url}/#/{route}{'&' if '?' in route else '?'}workflowType=machine_learning"


def test_the_mlflow_run_page_shows_figures_model_and_the_way_to_prefect(stack, completed, page, show):
    found = stack.tracked(completed)
    page.goto(mlflow_page(stack, f"experiments/{found.info.experiment_id}/runs/{found.info.run_id}"))
    expect(page.get_by_role("heading", name="Registered models")).to_be_visible()
    expect(page.get_by_text("train.seed", exact=True).first).to_be_visible()
    expect(page.get_by_text("eval/accuracy", exact=True).first).to_be_visible()
    link = page.get_by_role("link", name=found.data.tags["prefect.flow_run_name"])
    expect(link).to_have_attribute("href", found.data.tags["prefect.flow_run_url"])
    show("mlflow-run")


def test_the_mlflow_run_page_shows_the_plots(stack, completed, page, show):
    found = stack.tracked(completed)
    page.goto(mlflow_page(stack, f"experiments/{found.info.experiment_id}/runs/{found.info.run_id}/artifacts/report"))
    page.get_by_text("learning_curves.png").first.click()
    picture = page.locator("img[src^='blob:'], img[src*='learning_curves.png']").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") > 300
    show("mlflow-plots")


def test_the_way_from_the_prefect_run_leads_to_its_report(stack, completed, page):
    (flow_run_id,) = completed.state().prefect_flow_run_ids
    page.goto("about:blank")  # MLflow looks for an artifact in the address only when it is loaded
    page.goto(stack.summary(flow_run_id).partition("[report](")[2].partition(")")[0])
    shown = page.frame_locator("iframe")
    expect(shown.get_by_role("heading", name="digits", exact=True)).to_be_visible()
    assert all(image.evaluate("image => image.naturalWidth") for image in shown.get_by_role("img").all())


def test_mlflow_compares_two_runs_by_params_metrics_and_curves(stack, completed, other, page, show):
    runs = [stack.tracked(run) for run in (completed, other)]
    ids, experiments = json.dumps([run.info.run_id for run in runs]), json.dumps([runs[0].info.experiment_id])
    page.goto(mlflow_page(stack, f"compare-runs?runs={quote(ids)}&experiments={quote(experiments)}"))
    expect(page.get_by_text("Comparing 2 Runs from 1 Experiment")).to_be_visible()
    batch_size = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="feed.global_batch_size"))
    expect(batch_size).to_contain_text("64")
    expect(batch_size).to_contain_text("128")
    expect(page.get_by_role("link", name="eval/accuracy", exact=True)).to_be_visible()
    for run in runs:
        expect(page.get_by_text(f"{run.data.metrics['eval/accuracy']:.3f}", exact=True).first).to_be_visible()
    show("mlflow-compare")

    curves = page.get_by_role("link", name="accuracy", exact=True).get_attribute("href")  # a row far below is not made
    page.goto(f"{stack.mlflow_url}/{curves}&workflowType=machine_learning")  # which the page's own link leaves out
    for run in runs:
        expect(page.get_by_text(f"{run.info.run_name} (accuracy)", exact=True).first).to_be_visible()
    expect(page.locator(".js-plotly-plot .scatterlayer .trace").nth(1)).to_be_attached()
    show("mlflow-curves")


def test_the_prefect_form_shows_our_groups_and_starts_a_run(stack, completed, page, show):
    deployment = stack.deployment("digits")
    page.goto(f"{stack.prefect_url}/deployments/deployment/{deployment['id']}/run")
    for group in GROUPS:
        expect(page.get_by_text(f"{group} (Optional)", exact=True)).to_be_visible()
    expect(page.get_by_text("Examples in one optimizer update, over all replicas.")).to_be_visible()
    show("prefect-form")
    name = page.get_by_role("textbox").first.input_value()
    submit(page)
    page.wait_for_url("**tab=Runs")
    (flow_run,) = stack.api("POST", "/flow_runs/filter", flow_runs={"name": {"any_": [name]}})
    assert flow_run["parameters"]["train"]["total"] == "15 epochs"
    assert stack.ends(flow_run["id"])["type"] == "COMPLETED"


def test_the_prefect_run_page_shows_stages_and_the_way_to_mlflow(stack, completed, page, show):
    page.goto(stack.tracked(completed).data.tags["prefect.flow_run_url"])
    expect(page.get_by_text("Completed").first).to_be_visible()
    expect(page.get_by_text("prepare: 6 shards").first).to_be_visible()
    show("prefect-run")
    page.get_by_text("Artifacts", exact=True).first.click()
    expect(page.get_by_text("millstream-digits").first).to_be_visible()


def test_the_summary_shows_its_plots(stack, completed, page):
    (flow_run_id,) = completed.state().prefect_flow_run_ids
    page.goto(f"{stack.prefect_url}/artifacts/artifact/{stack.artifact(flow_run_id, 'markdown')['id']}")
    plot = page.get_by_role("img", name="learning curves")
    expect(plot).to_be_visible()
    assert plot.evaluate("image => image.complete && image.naturalWidth") == 750
