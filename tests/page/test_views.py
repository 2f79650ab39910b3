"""The page in Chromium: every view, light and dark, by keyboard, and when nothing comes."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.device.nodes import a100x8, report
from tests.objects import upsert_devices
from tests.page.stage import KEY, open_stage
from tests.see.scene import GPU, make_scene
from tests.see.test_app import JOB, ON_DEMAND, RECORDS, make_record

from koord.answers.reading import Reading
from koord.answers.redaction import Sight
from koord.answers.reports import Reported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster import FakeCluster
    from tests.page.stage import Stage

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "page"
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "overview": ("", "GPUs"),
    "queue": ("queue", "default/moe"),
    "queue-room": ("queue?class=Misconfigured", "default/moe"),
    "unit": ("unit/default/podgroup/moe", "What would help"),
    "quotas": ("quotas", "team-b"),
    "quota": ("quotas/team-a", "default/bert-0"),
    "map": ("map", "stranded"),
    "map-table": ("map?as=table", "gpu-00"),
    "node": ("node/gpu-00", "Devices"),
    "reservations": ("reservations", "nightly"),
    "what-if": ("whatif?shape=2x8&edits=delete+podgroup/default/tune", "would wait then"),
    "time": ("time", "Preempted"),
    "health": ("health", "gpu-10"),
    "nothing": ("nothing", "There is no such view"),
}
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Looked:
    """A page of the browser, and what it did that it should not."""

    def __init__(self, page: Any, stage: Stage) -> None:
        self.page, self.root = page, stage.root
        self.errors: list[str] = []
        page.set_default_timeout(10_000)
        page.add_init_script(WATCH)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", self._let)

    def _let(self, route: Any) -> None:
        if route.request.url.startswith((f"{self.root}/", "data:,")):
            route.continue_()
        else:
            self.errors.append(f"asked for {route.request.url}")
            route.abort()

    def open(self, path: str, text: str) -> None:
        self.page.goto(f"{self.root}/page/{path}")
        self.page.get_by_text(text).first.wait_for()

    def expect_nothing_wrong(self) -> None:
        assert self.errors == []
        assert self.page.evaluate("window.violations") == []


@contextmanager
def look(browser: Any, stage: Stage, **options: Any) -> Iterator[Looked]:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    try:
        looked = Looked(context.new_page(), stage)
        looked.open(f"#k={KEY}", "GPUs")
        yield looked
        looked.expect_nothing_wrong()
    finally:
        context.close()


def find_unclear(looked: Looked) -> list[tuple[str, str]]:
    """Return what axe finds; nothing if it is not installed."""
    if not AXE.exists():
        return []
    looked.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = looked.page.evaluate("axe.run()")["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found]


def test_every_view_is_clear_in_light_and_dark_and_narrow(browser: Any, stage: Stage) -> None:
    """It keeps the policy of contents, axe finds nothing, and nothing is wider than a phone."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with look(browser, stage) as looked:
        page = looked.page
        for name, (path, text) in VIEWS.items():
            looked.open(path, text)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=True)
                assert find_unclear(looked) == [], (name, scheme)
            page.set_viewport_size({"width": 360, "height": 740})
            page.screenshot(path=PICTURES / f"{name}-narrow.png")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
            page.set_viewport_size({"width": 1280, "height": 800})
            looked.expect_nothing_wrong()


@pytest.mark.skipif(AXE.exists(), reason="")
def test_axe_is_there() -> None:
    pytest.skip("axe does not look at the page: npm ci was not run (make page)")


def test_the_keyboard_is_enough(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        page = looked.page
        page.keyboard.press("g")
        page.keyboard.press("q")
        page.wait_for_url("**/page/queue")
        page.get_by_text("default/moe").first.wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/page/unit/default/podgroup/moe")
        page.locator("#why").wait_for()
        page.keyboard.press("w")
        assert page.evaluate("document.activeElement.id") == "why"
        page.keyboard.press("Escape")
        page.wait_for_url("**/page/queue")
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("m")
        page.locator("canvas").first.wait_for()
        page.keyboard.press("t")
        page.get_by_role("region", name="Nodes with their GPUs").wait_for()
        page.reload()
        page.get_by_role("region", name="Nodes with their GPUs").wait_for()


def test_names_are_texts(browser: Any, stage: Stage) -> None:
    """Marks of direction and of terminals do nothing, either."""
    odd = make_pod("odd\u202egnp\x1b[31m<img src=x>").gpu(1).created(1)
    stage.change(lambda: stage.cluster.pods(odd))
    with look(browser, stage) as looked:
        looked.open("queue", "default/note<b>book")
        assert looked.page.locator("main b, main img").count() == 0
        looked.page.get_by_text("odd\\u202egnp\\u001b[31m").first.wait_for()
        for cell in looked.page.locator("main a, main td span").filter(has_text="odd").all():
            assert cell.evaluate("each => getComputedStyle(each).unicodeBidi") == "isolate"


def test_what_changes_is_shown_without_asking(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.open("queue", "default/moe")
        stage.change(lambda: stage.cluster.pods(make_pod("late").gpu(1).created(time.time())))
        looked.page.get_by_text("default/late").wait_for()


def test_a_cluster_that_cannot_be_read_is_said_so(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        stage.problem = "the API server is away"
        stage.read_again()
        looked.open("queue", "the API server is away")
        assert looked.page.locator("main.old").count() == 1
        looked.page.get_by_text("default/moe").first.wait_for()


def test_silence_is_visible(browser: Any, stage: Stage) -> None:
    context = browser.new_context()
    looked = Looked(context.new_page(), stage)
    looked.page.clock.install()
    looked.open(f"#k={KEY}", "GPUs")
    text = looked.page.get_by_text(re.compile("not live since"))
    while text.count() == 0:  # what was on its way still comes
        looked.page.clock.fast_forward("00:30")
    context.close()


def test_without_the_key_there_is_a_form_for_it(browser: Any, stage: Stage) -> None:
    context = browser.new_context()
    looked = Looked(context.new_page(), stage)
    looked.open("queue", "The page is locked")
    looked.page.get_by_label("Key").fill("wrong")
    looked.page.get_by_role("button", name="Open").click()
    looked.page.get_by_text("This is not the key").wait_for()
    looked.page.get_by_label("Key").fill(KEY)
    looked.page.get_by_role("button", name="Open").click()
    looked.page.get_by_text("default/moe").first.wait_for()
    context.close()


def test_the_key_stays_in_no_address(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        assert KEY not in looked.page.url


def test_long_lists_are_windowed(browser: Any) -> None:
    cluster = make_scene(time.time())
    cluster.pods(*(make_pod(f"many-{at:04}").gpu(1).created(at) for at in range(1500)))
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        looked.open("queue", "default/many-0000")
        table = looked.page.get_by_role("region", name="What waits")
        assert looked.page.locator("tbody tr").count() <= 62
        table.evaluate("element => element.scrollTo(0, element.scrollHeight)")
        looked.page.get_by_role("link", name="default/many-1499").wait_for()
        assert looked.page.locator("tbody tr").count() <= 62


def test_a_reason_that_only_others_know_has_no_class(browser: Any) -> None:
    """Whoever may write a condition may write any reason into it."""
    cluster = make_cluster().nodes(make_node("n").gpu(1))
    cluster.pods(make_pod("theirs").gpu(1).created(1), make_pod("ours").gpu(1).created(2))
    report = Reported("Placed", "False", "OfOthers", "It waits for something.", LONG_AGO)

    def look_at(cluster: FakeCluster) -> Reading:
        return Reading(cluster.state, is_followed=True, reports={"default/theirs": report})

    with open_stage(cluster, look=look_at) as stage, look(browser, stage) as looked:
        for path in ("", "queue"):
            looked.open(path, "It waits for something.")
            looked.page.get_by_role("link", name="default/ours").first.wait_for()
            looked.expect_nothing_wrong()


LONG_AGO = "2026-09-01T00:00:00Z"


def test_when_many_rows_change_the_focus_stays_with_its_row(browser: Any) -> None:
    """What comes is shown in the elements of what went, some rows in each frame."""
    names = [f"waits-{at:03}" for at in range(90)]

    def make(chosen: list[str]) -> list[Any]:
        return [make_pod(name).gpu(8).created(int(name[-3:])) for name in chosen]

    cluster = make_cluster().nodes(make_node("n").gpu(1)).pods(*make(names[:60]))
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        looked.open("queue", "default/waits-000")
        looked.page.get_by_role("link", name="default/waits-012", exact=True).focus()
        stage.change(lambda: cluster.delete_pods(*names[:10]).pods(*make(names[60:])))
        looked.page.wait_for_function(SHOWS, arg=[f"default/{name}" for name in names[10:]])
        assert looked.page.evaluate("document.activeElement.textContent") == "default/waits-012"
        stage.change(lambda: cluster.delete_pods("waits-012"))
        looked.page.get_by_role("link", name="default/waits-012").wait_for(state="detached")
        assert looked.page.evaluate("document.activeElement.tagName") == "BODY"


SHOWS = """names => {
  const links = [...document.querySelectorAll("tbody tr:not(.filler) td:nth-child(2) a")];
  return links.length > 20 && links.every((link, at) => link.textContent === names[at]);
}"""
"""Whether a list shows units, in order and without a gap."""


@pytest.mark.slow
def test_an_hour_of_readings_leaves_nothing_behind(browser: Any, stage: Stage) -> None:
    """A reading each fifteen seconds, and each changes what is shown."""
    with look(browser, stage) as looked:
        tools = looked.page.context.new_cdp_session(looked.page)

        def measure() -> float:
            tools.send("HeapProfiler.collectGarbage")
            used = tools.send("Runtime.getHeapUsage")["usedSize"]
            return float(used)

        def read(at: int) -> None:
            late = make_pod(f"late-{at}").gpu(1).created(time.time())
            stage.change(lambda: stage.cluster.pods(late))
            stage.change(lambda: stage.cluster.delete_pods(f"late-{at}") if at < 259 else None)

        looked.open("queue", "default/moe")
        for at in range(20):
            read(at)
        before = measure()
        for at in range(140, 260):
            read(at)
        looked.page.get_by_role("link", name="default/late-259").wait_for()
        assert measure() < 1.2 * before + 500_000


SECRET = "secret"  # noqa: S105 - a name


def add_others(cluster: FakeCluster) -> None:
    """Add to a scene what another team has: running, waiting, as quota, and told of in records."""
    cluster.quotas(make_quota(f"{SECRET}-quota", namespace=SECRET, min={GPU: 8}, max={GPU: 16}))
    key = f"{SECRET}/gang"
    for name, node in (("runs", "gpu-08"), ("waits", "")):
        pod = make_pod(f"{SECRET}/{name}-{SECRET}").gpu(2).quota(f"{SECRET}-quota")
        cluster.pods(pod.running(node) if node else pod.created(1))
    cluster.pod_groups(make_pod_group(key, 3))
    cluster.pods(make_pod(f"{SECRET}/gang-0").gang(key).gpu(8).created(1))


def test_of_others_no_name_is_on_the_page(browser: Any) -> None:
    cluster = make_scene(time.time())
    add_others(cluster)
    sight = Sight(frozenset({"default"}), quotas=False)
    records = (*RECORDS, make_record(f"{SECRET}/gang", 8, "Running"))
    on_demand = replace(ON_DEMAND, list_records=lambda: (records, ()))
    with open_stage(cluster, sight, on_demand) as stage, look(browser, stage) as looked:
        for name, (path, text) in {**VIEWS, "node": ("node/gpu-08", "Resources")}.items():
            if name in {"quota", "quotas"}:
                continue  # who may not list quotas has not read any
            looked.open(path, text)
            looked.page.wait_for_timeout(200)
            assert SECRET not in looked.page.content(), name


def test_a_tab_that_nobody_sees_has_no_stream(browser: Any, stage: Stage) -> None:
    hide = (
        "hidden => Object.defineProperty(document, 'hidden', {value: hidden, configurable: true})"
    )
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    with look(browser, stage) as looked:
        looked.open("queue", "default/moe")
        looked.page.evaluate(f"({hide})(true); {tell}")
        stage.change(lambda: stage.cluster.pods(make_pod("late").gpu(1).created(time.time())))
        looked.page.wait_for_timeout(300)
        assert looked.page.get_by_text("default/late").count() == 0
        looked.page.evaluate(f"({hide})(false); {tell}")
        looked.page.get_by_role("link", name="default/late").wait_for()


def test_a_job_is_tried_and_its_address_shows_it_again(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        page = looked.page
        looked.open("whatif", "Where is room?")
        page.get_by_label("Edit").select_option("submit")
        page.get_by_label("manifest (YAML)").fill(JOB)
        page.get_by_role("button", name="Try").click()
        page.get_by_role("link", name="default/new").wait_for()
        page.reload()
        page.get_by_text("Submit a job: Pod new").wait_for()


def test_six_questions_take_three_clicks_at_most(browser: Any) -> None:
    scene = make_scene(time.time())
    with open_stage(scene, on_demand=ON_DEMAND) as stage, look(browser, stage) as looked:
        page = looked.page

        def click(*names: str) -> None:
            """Click at links, from the overview on."""
            page.goto(f"{stage.root}/page/")
            for name in names:
                page.get_by_role("link", name=name, exact=True).first.click()

        click()  # does my team get its share?
        page.get_by_text("owed 16").wait_for()
        click("default/moe")  # why does it wait, and when does it start?
        page.get_by_text("quota team-b may use at most 48").first.wait_for()
        page.get_by_text("It would not start even if nothing else ran.").wait_for()
        click("default/moe", "team-b", "All quotas")  # who has my GPUs?
        page.get_by_text("used beyond what is guaranteed").wait_for()
        click("Quotas", "team-a")
        page.get_by_text("default/bert-0").wait_for()
        click("Where is room?")  # for 4 x 8
        page.get_by_label("Pods x GPUs").fill("4x8")
        page.get_by_label("Pods x GPUs").press("Enter")
        page.get_by_text("There is no room for 4x8 now.").wait_for()
        click("What happened")  # what broke at 3 a.m.?
        page.get_by_text("NewLeader").wait_for()
        page.locator(".spread button").first.click()
        page.wait_for_url("**/time?from=2026-11-25T03*")
        page.get_by_text("Running").first.wait_for()


def test_what_is_being_typed_stays_when_the_cluster_changes(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.open("queue", "default/moe")
        looked.page.locator("#search").press_sequentially("mo")
        stage.change(lambda: stage.cluster.pods(make_pod("late").gpu(1).created(time.time())))
        looked.page.get_by_text("default/late").wait_for()
        looked.page.locator("#search").press_sequentially("e")
        looked.page.keyboard.press("Enter")
        looked.page.wait_for_url("**/queue?q=moe")
        looked.page.get_by_text("default/late").wait_for(state="detached")


def test_a_quota_says_what_it_is_owed_and_who_uses_more_than_a_share(browser: Any) -> None:
    """Its team asks this page who has its GPUs."""
    cluster = make_scene(time.time())
    cluster.pods(
        *(make_pod(f"more-{at}").gpu(8).quota("team-a").running(f"gpu-{at:02}") for at in (8, 9))
    )
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        looked.open("quotas/team-b", "It is owed 16 nvidia.com/gpu")
        looked.page.get_by_text("team-a uses 11 nvidia.com/gpu more than its share").wait_for()
        looked.open("quotas/team-a", "It uses 11 nvidia.com/gpu more than its share")


def test_free_gpus_of_a_node_that_are_broken_are_said_so(browser: Any, stage: Stage) -> None:
    """Those that an agent publishes are fewer already."""
    node = make_node("mixed").gpu(8).resource("koordinator.sh/gpu", 700)
    stage.change(lambda: stage.cluster.nodes(node))
    broken = report("mixed", a100x8(sick=(0,)))
    stage.change(lambda: upsert_devices(stage.cluster.state, broken))
    with look(browser, stage) as looked:
        looked.open("node/mixed", "koordinator.sh/gpu")
        looked.page.get_by_role("row").filter(has_text="nvidia.com/gpu").get_by_text(
            "1 broken"
        ).wait_for()
        assert looked.page.get_by_text("1 broken").count() == 1


def test_of_hundreds_of_quotas_those_at_the_end_are_as_live_as_the_first(browser: Any) -> None:
    cluster = make_scene(time.time())
    cluster.quotas(*(make_quota(f"many-{at:03}", max={GPU: 8}) for at in range(150)))
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        looked.open("", "owed 16")
        looked.open("quotas", "team-c")
        row = looked.page.get_by_role("row").filter(has_text="team-c")
        row.get_by_role("cell", name="9", exact=True).wait_for()
        more = make_pod("more").gpu(8).quota("team-c").running("gpu-08")
        stage.change(lambda: cluster.pods(more))
        row.get_by_role("cell", name="17", exact=True).wait_for()


def test_a_job_that_waits_no_longer_is_found_from_any_view(browser: Any) -> None:
    with (
        open_stage(make_scene(time.time()), on_demand=ON_DEMAND) as stage,
        look(browser, stage) as looked,
    ):
        looked.page.keyboard.press("/")
        looked.page.wait_for_url("**/page/queue")
        looked.page.locator("#search:focus").wait_for()
        looked.page.keyboard.type("train")
        looked.page.keyboard.press("Enter")
        looked.page.get_by_role("link", name="what is told of train").click()
        looked.page.get_by_role("link", name="default/train").first.wait_for()


def test_times_say_of_which_zone_they_are(browser: Any) -> None:
    """Who compares with the log of the operators, in UTC, has to know; the diagram has ends."""
    scene = make_scene(time.time())
    zone = {"timezone_id": "Asia/Kolkata", "locale": "en-GB"}
    with open_stage(scene, on_demand=ON_DEMAND) as stage, look(browser, stage, **zone) as looked:
        looked.open("time", "Times are those of Asia/Calcutta, GMT+5:30.")
        looked.page.get_by_role("cell", name="25/11/2026 08:30:00").wait_for()
        assert looked.page.locator(".ends time").first.text_content() == "25/11/2026 08:30:00"


def test_the_last_hour_is_that_of_the_server(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.page.clock.set_fixed_time(time.time() + 86400)
        looked.open("time", "Preempted")
        looked.page.get_by_role("button", name="last 24 hours").click()
        looked.page.wait_for_url("**/time?from=*")
        looked.page.get_by_text("Preempted").first.wait_for()


def test_what_is_gone_is_still_told_of(browser: Any) -> None:
    scene = make_scene(time.time())
    with open_stage(scene, on_demand=ON_DEMAND) as stage, look(browser, stage) as looked:
        looked.open("unit/default/podgroup/train", "There is no PodGroup")
        looked.page.get_by_text("What happened").wait_for()


def test_of_a_large_map_what_is_in_sight_is_drawn(browser: Any) -> None:
    """One canvas of thousands of nodes is slow to draw, and larger than browsers allow."""
    cluster = make_cluster().nodes(*(make_node(f"many-{at:04}").gpu(8) for at in range(3000)))
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        page = looked.page
        looked.open("map", "24,000")
        sheet = page.locator(".sheet")
        page.locator("canvas").first.wait_for()
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_function(
            "[...document.querySelectorAll('canvas')].some(each => each.offsetTop > 500)"
        )
        height = sheet.evaluate("each => each.clientHeight")
        tiles = page.locator("canvas").evaluate_all("all => all.map(each => each.clientHeight)")
        assert sum(tiles) < height
        sheet.click(position={"x": 5, "y": height - 22})
        page.wait_for_url("**/node/many-29*")


def test_of_a_large_map_what_changed_is_shown(browser: Any) -> None:
    """Of many nodes the server tells those that changed."""
    cluster = make_cluster().nodes(*(make_node(f"many-{at:04}").gpu(8) for at in range(150)))
    with open_stage(cluster) as stage, look(browser, stage) as looked:
        looked.open("map", "1,200")
        stage.change(lambda: cluster.pods(make_pod("more").gpu(8).running("many-0000")))
        looked.page.locator(".legend").get_by_text("1,192").wait_for()


def test_devices_of_pods_that_nobody_recorded_are_not_said_to_be_free(
    browser: Any, stage: Stage
) -> None:
    """A device plugin hands out GPUs, and which is written nowhere."""
    with look(browser, stage) as looked:
        looked.open("node/gpu-00", "Which GPU a pod has is not recorded here")
        gpus = looked.page.locator(".devices > li").filter(has_text="gpu")
        assert gpus.filter(has_text="not recorded").count() == 8
        assert gpus.filter(has_text="free").count() == 0


def test_without_room_the_nearest_nodes_are_named(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.open("whatif?shape=40x8", "Nodes that come nearest")
        row = looked.page.get_by_role("row").filter(has_text="gpu-05")
        row.get_by_text("nvidia.com/gpu: 8 asked, 5 free").wait_for()


def test_what_was_tried_in_vain_is_not_marked_as_what_helps(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.open("unit/default/podgroup/moe", "✗ in vain")
        marked = looked.page.locator("li").filter(has_text="✓ tried")
        assert marked.filter(has_text="it would still wait").count() == 0
        assert marked.count() >= 1
