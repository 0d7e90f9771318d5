"""The report page: what it shows, that it is complete in itself, and that the same results give the same bytes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path

import learning_samples
import numpy as np
import pandas as pd
import pytest
from stages_by_hand import main_of

from tileseer.cli.main import main
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.learn.model_schema import Origin, RealityCheck, Summary
from tileseer.learn.validation_report import Pick
from tileseer.measure.device import DEVICE_KINDS
from tileseer.report import decisions, figures, measured, page, results, tables
from tileseer.report.tables import Copied, PageTable
from tileseer.serve import verdict
from tileseer.serve.serving_files import Kernels

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "workflow" / "templates" / "report.html.j2"
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")
HOSTILE = "<script>alert(1)</script>"
ATTRIBUTE = '"><img src=x onerror=alert(2)>'
VOID = {"meta", "link", "br", "img", "input"}
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def summary(mean: float) -> dict:
    return {"mean": mean, "median": mean + 1.5, "p10": mean - 11.25, "min": mean - 30.75}


def percentiles(mean: float) -> list[float]:
    return [mean - 25 + i / 2 for i in range(51)]


def origin(operation: str, kind: str = "simulated") -> dict:
    return {"operation": operation, "arch": "gfx950", "device": "gfx950_mi355x", "device_kind": kind}


def of(mean: float) -> dict:
    return {"efficiency": summary(mean), "percentiles": percentiles(mean)}


def learnt(mean: float) -> dict:
    return {"efficiency": summary(mean), "interval": {"mean": [mean - 1.5, mean + 1.5]}}


def ranking(mean: float) -> dict:
    return {
        **of(mean),
        "top1": 41.5,
        "top3": 60.5,
        "top5": 70.5,
        "efficiency_best_of_3": summary(97.0),
        "efficiency_best_of_5": summary(98.0),
        "within_2_percent": 51.5,
        "below_80_percent": 4.5,
    }


def stratum(problems: int, mean: float) -> dict:
    floor = {"noise_floor": {"perfect_selector": summary(99.25)}}
    return {"n_problems": problems, **learnt(mean), "within_2_percent": 50.5, **floor}


def active_round(number: int, pairs: int, share: float, mean: float) -> dict:
    return {"round": number, "pairs": pairs, "share": share, "picks_changed": None, **learnt(mean)}


def validation(operation: str, kind: str = "simulated") -> dict:
    floors = {"noise_floor": {"perfect_selector": summary(99.25)}}
    networks = {"alexnet": 93.5, "resnet50": 96.0, HOSTILE: 71.25}
    return {
        **origin(operation, kind),
        "n_problems": 1431,
        "n_without_measurement": 7,
        "n_candidates": 2222,
        "mean_pool_size": 801.5,
        **ranking(94.25),
        "by_ndim": {"2d": stratum(1400, 95.0)},
        "interval": {"mean": [93.125, 95.375]},
        "interval_level": 95,
        "of_perfect_model": 97.25,
        "noise_floor": {
            "basis": "noise-free times",
            **{
                name: {
                    "meaning": f"the {name}",
                    **of(99.5),
                    "interval": {},
                    "within_2_percent": 90.0,
                    "top1": 80.0,
                    "efficiency_best_of_3": summary(99.75),
                }
                for name in ("perfect_selector", "perfect_model", "luckiest_sample", "against_true_best")
            },
        },
        "ties": {
            "meaning": "within the noise",
            "between_runs": 0.5,
            "mean_candidates": 1.625,
            "problems_with_several": 33.25,
            "picks": 55.75,
        },
        "by_layer_kind": {"3x3": stratum(900, 94.0)},
        "reference_trainer": {
            "meaning": "97 features",
            **ranking(91.75),
            "interval": {},
            "ahead": {"meaning": "points", "mean": 2.5, "interval": [1.875, 3.125]},
        },
        "oracle": {"meaning": "of the pool", "outside_the_pool": 0, "mean_coverage": 99.5, "least_coverage": 91.25},
        "end_to_end": [
            {
                "network": "resnet50",
                "run": "training",
                "n_layers": 20,
                "n_failed": 1,
                "end_to_end": 88.125,
                "flop_weighted": 85.625,
                "flop_scored": 99.875,
                "noise_floor": {
                    "perfect_selector": {"end_to_end": 99.375, "flop_weighted": 98.625},
                    "perfect_model": {"end_to_end": 90.375, "flop_weighted": 88.625},
                },
            }
        ],
        "by_distance": [
            {"above": 0.5, "up_to": 1.0, "of_a_known_kind": True, **stratum(7, 95.0)},
            {"above": None, "up_to": None, "of_a_known_kind": False, **stratum(3, 65.0)},
        ],
        "learning_curve": [
            {
                "share": s,
                "problems": 10 * n,
                "pairs": 1000 * n,
                "efficiency": summary(80.0 + n),
                "interval": {"mean": [79.5, 91.5]},
            }
            for n, s in enumerate((10.0, 100.0), 1)
        ],
        "active": {
            "supported_training_pairs": 1000,
            "noise_floor": {"perfect_selector": summary(99.0), "perfect_model": summary(96.375)},
            "rounds": [active_round(i + 1, 100 * (i + 1), 10.0 * (i + 1), 80.0 + i) for i in range(3)],
        },
        "transfer": {
            "prior": {"operation": "forward_fp16", "arch": "gfx942", "device": "gfx942_mi300x", "device_kind": kind},
            "n_problems": 20,
            "seen_by_prior": 0,
            "shares": [
                {"share": 0.0, "pairs": 0, "with_prior": learnt(70.0)},
                {"share": 5.0, "pairs": 50, "with_prior": learnt(85.0), "without_prior": learnt(60.5)},
            ],
        },
        "by_network": {name: stratum(5, mean) | {"in_training": False} for name, mean in networks.items()},
        "baselines": {
            "best_single_kernel": {"meaning": "one for all", "candidates": {"2d": "k"}, **of(62.75), **floors},
            "random_supported": {"meaning": "any", **of(33.5), **floors},
            "hand_rule": {"meaning": "reuse", **of(55.5), **floors},
        },
        "worst": [
            {
                "problem_key": "00",
                "network": HOSTILE,
                "layer": ATTRIBUTE,
                "problem": "N=1 C=64 Di=1 Hi=14 Z=1 stride_h=2 stride_w=1 pad_h=0 pad_w=1 dilation_h=1",
                "pick": "picked_kernel",
                "best": "fastest_kernel",
                "efficiency": 12.25,
                "pick_failed": False,
                "spoke_for_the_pick": [{"feature": "tile_m", "contribution": 0.596, "of_pick": 128.0, "of_best": 16.0}],
                "outside_training": ["C 9000, trained on 1 to 4096"],
                "distance_percentile": 97.5,
                "nearest_training_problem": "N=1 C=4096 Di=1",
            }
        ],
        "picks": {},
    }


def write_training(folder: Path, operation: str, kind: str = "simulated") -> Path:
    importances = {f"feature_{i:02}": 1000 - 10 * i for i in range(30)}
    counts = {
        "data_rows": 99999, "pool_rows": 88888, "valid_rows": 77777, "training_rows": 54321, "unique_problems": 987,
        "layer_families": 900, "candidates": 2222, "total_n_estimators": 600,
    }  # fmt: skip
    made = {"lightgbm": "unknown", "settings": {}}
    manifest = {**origin(operation, kind), **counts, **made}
    picks = {f"{name}_efficiency": 90.0 for name in ("mean", "median", "p10", "min")}
    fold = {**picks, "train_size": 9, "val_size": 3, "val_groups": 2, "r2": 0.75}
    files = {
        "train_manifest.json": {**manifest, "out_of_fold_efficiency": summary(95.5)},
        "cv_metrics_tflops.json": [{**fold, "fold": i, "rmse": 0.25 + i / 100} for i in range(3)],
        "feature_importances_tflops.json": importances,
    }
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def write_stages(folder: Path) -> tuple[list[Path], list[Path]]:
    """Write validation reports and training folders of three operations."""
    reports = []
    for operation in OPERATIONS:
        reports.append(folder / f"{operation}.json")
        reports[-1].write_text(json.dumps(validation(operation)))
    return reports, [write_training(folder / "training" / operation, operation) for operation in OPERATIONS]


@pytest.fixture
def stages(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    return write_stages(tmp_path)


def shipped(seen: measured.Measured, result: results.OperationResult) -> Kernels:
    """A kernel list whose set is two kernels."""
    names = sorted(set(seen.candidates["kernel"]))
    entries = [{"kernel": name, "registry_key": {}} for name in names]
    about = {name: getattr(result.validation, name) for name in ("operation", "arch", "device", "device_kind")}
    few = {"pool_size": len(names), "pruned_size": 2, "pruned": names[1::-1], "kernels": entries}
    within = {"train": summary(99.25), "validation": summary(98.5)}
    return Kernels(**about, **few, meaning="few", allowed_loss=0.01, oracle_within_pruned=within)


def as_rows(table: PageTable) -> list[dict]:
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def with_measurements(stages: results.Results) -> results.Results:
    """The results with what a small simulated dataset shows of each direction."""
    operations = []
    for result in stages.operations:
        found = learning_samples.measured(result.validation.operation.removesuffix("_bf16"))
        error = np.full(len(found.status), 0.0125)
        assert found.problems["layer"].iloc[3] == "layer3"
        problems = found.problems.assign(layer=[HOSTILE if x == "layer3" else x for x in found.problems["layer"]])
        found = dataclasses.replace(found, problems=problems, relative_error=error)
        shown = measured.measured_of(found, learning_samples.product())
        keys = shown.shapes["problem_key"].tolist()
        picks = {
            keys[0]: Pick(candidate=shown.shapes["candidate"][0], efficiency=100.0, ties=17, tied=True),
            keys[1]: Pick(candidate=shown.candidates["candidate"][1], efficiency=81.25, ties=3, tied=False),
        }
        judged = result.validation.model_copy(update={"picks": picks})
        operations.append(
            dataclasses.replace(
                result, validation=judged, measured=shown, library_us={keys[1]: 123.5}, kernels=shipped(shown, result)
            )
        )
    return dataclasses.replace(stages, operations=tuple(operations))


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> results.Results:
    return with_measurements(results.read_results(*write_stages(tmp_path_factory.mktemp("stages"))))


def svg_of(panel: figures.Panel) -> str:
    return figures.svg(panel.spec, "x")


@pytest.fixture(scope="module")
def html(shown) -> str:
    return page.render_page(shown, TEMPLATE)


class Page(HTMLParser):
    """The elements, attributes and texts of a page, and whether its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_the_page_is_well_formed(html):
    parsed = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert parsed.open == []
    identifiers = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)


def test_the_page_has_eight_sections_and_begins_with_the_verdict(html, shown):
    names = re.findall(r'<section id="(\w+)"', html)
    assert names == [section.name for section in page.SECTIONS] and len(names) <= 8 and names[0] == "verdict"
    for section in page.SECTIONS:
        inner = html.split(f'<section id="{section.name}"')[1].split("</section>")[0]
        assert inner.count("<svg ") == sum(len(draw(shown)) for draw in section.draw), section.name
        assert inner.count('class="spec"') == inner.count("<svg "), section.name
        tabulated = sum(len(tabulate(shown)) for tabulate in section.shown + section.folded)
        assert inner.count("<caption>") == tabulated and tabulated + inner.count("<svg "), section.name


def test_every_figure_and_table_says_what_it_shows_and_that_it_is_simulated(html):
    parsed = Page(html)
    panels = [attributes["aria-label"] for tag, attributes in parsed.elements if attributes.get("role") == "img"]
    html = SCRIPT.sub("", html)
    assert len(panels) == html.count("<svg ")
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    assert len(captions) == html.count("<table ")
    assert all("(simulated)" in label for label in panels + captions)
    assert html.count("<th scope=") == html.count("<th ")


def test_the_numbers_of_the_validation_report_are_on_the_page(html):
    texts = Page(html).texts
    numbers = ("1,431", "94.2", "83.0", "63.5", "62.8", "41.5", "51.5", "12.2", "54,321", "97.2")
    worst = ("picked_kernel", "fastest_kernel", "N=1 C=64 Hi=14 stride_h=2 pad_w=1")
    for expected in (*numbers, *worst, "one for all"):
        assert expected in texts, expected


def test_the_kind_of_device_is_before_everything_else(html):
    assert html.index("simulated – no GPU was measured") < html.index("<main>")
    assert "fitted to one case only" in html.split("<main>")[0]


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_only_simulated_times_are_called_simulated(tmp_path, kind):
    report = tmp_path / "v.json"
    report.write_text(json.dumps(validation("forward_bf16", kind)))
    training = write_training(tmp_path / "t", "forward_bf16", kind)
    html = page.render_page(results.read_results([report], [training]), TEMPLATE)
    assert page.DEVICE_NOTES[kind][0] in html
    assert f"({kind})" in html
    assert ("simulated" in html) == (kind == "simulated")


def test_names_cannot_become_markup(html):
    parsed = Page(html)
    assert not {tag for tag, _ in parsed.elements} & {"img", "iframe", "object", "link", "foreignobject"}
    attributes = [attributes for tag, attributes in parsed.elements if tag == "script"]
    assert attributes.count({}) == 3
    assert all(a in ({}, {"type": "application/json", "class": "spec"}) for a in attributes)
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    assert HOSTILE in parsed.texts and f"{HOSTILE}: {ATTRIBUTE}" in parsed.texts


def test_nothing_is_loaded(html):
    parsed = Page(html)
    loading = {"src", "xlink:href", "srcset", "data", "action", "poster", "background"}
    assert not [(tag, attributes) for tag, attributes in parsed.elements if loading & set(attributes)]
    assert all(attributes["href"].startswith("#") for _, attributes in parsed.elements if "href" in attributes)
    assert not re.search(r"url\((?!#)|@import", SCRIPT.sub("", html))
    assert "default-src 'none'" in html


def test_only_our_three_scripts_may_run_and_none_may_evaluate_text(html):
    policy = re.search(r"script-src ([^;]*);", html)[1].split()
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in SCRIPT.findall(html)]
    assert policy == [f"'sha256-{digest}'" for digest in digests]
    assert len(policy) == 3


def test_what_the_browser_draws_is_what_was_drawn(html, shown):
    specs = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', html)
    panels = [panel for section in page.SECTIONS for draw in section.draw for panel in draw(shown)]
    assert [json.loads(text) for text in specs] == [panel.spec for panel in panels]


def test_the_same_results_give_the_same_bytes(html, stages):
    reports, trainings = stages
    again = page.render_page(with_measurements(results.read_results(reports[::-1], trainings[::-1])), TEMPLATE)
    assert again == html


def test_operations_come_in_the_order_of_the_directions(shown):
    assert [result.validation.operation for result in shown.operations] == list(OPERATIONS)


def test_a_field_that_is_missing_or_wrong_is_named(stages):
    reports, trainings = stages
    for field, value in (("top1", None), ("device_kind", "guessed"), ("baselines", {"x": {"meaning": 1}})):
        broken = deepcopy(validation("forward_bf16"))
        broken[field] = value
        reports[0].write_text(json.dumps(broken))
        with pytest.raises(UserError, match=rf"forward_bf16\.json: {field}"):
            results.read_results(reports, trainings)


def test_another_device_is_refused(stages):
    reports, trainings = stages
    reports[1].write_text(json.dumps({**validation(OPERATIONS[1]), "device": "other"}))
    with pytest.raises(UserError, match="device is 'other'"):
        results.read_results(reports, trainings)


def test_every_report_needs_its_training(stages):
    reports, trainings = stages
    for arguments in ((reports, trainings[:2]), (reports[:2], trainings), ([*reports, reports[0]], trainings)):
        with pytest.raises(UserError, match=r"one of each for every operation|but the reports have"):
            results.read_results(*arguments)


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing }}"])
def test_a_broken_template_is_named(shown, tmp_path, text):
    template = tmp_path / "broken.j2"
    template.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(template))):
        page.render_page(shown, template)


def test_a_missing_template_is_named(shown, tmp_path):
    with pytest.raises(UserError, match="there has to be a template"):
        page.render_page(shown, tmp_path / "none.j2")


def test_the_script_writes_the_page(stages, tmp_path, capsys):
    script = main_of("report")
    reports, trainings = ([str(path) for path in paths] for paths in stages)
    arguments = ["--validation", *reports, "--training", *trainings, "--template", str(TEMPLATE)]
    html = page.render_page(results.read_results(*stages), TEMPLATE)
    output = tmp_path / "reports" / "gfx950.html"
    assert script([*arguments, "--page", str(output)]) == 0
    assert output.read_text(encoding="utf-8") == html
    assert "simulated" in capsys.readouterr().out
    stages[0][0].write_text("{")
    assert script([*arguments, "--page", str(output)]) == 2
    assert "is not JSON" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8") == html


def test_the_model_is_beside_its_bounds_and_the_reference(shown):
    table = tables.bounds(shown)[0]
    assert [row[0] for row in table.rows] == [
        "model", "perfect selector", "perfect model", "against true best", "reference trainer",
    ]  # fmt: skip
    assert table.rows[0][-2] == "93.1 to 95.4"
    assert "2.50 points ahead (1.88 to 3.12)" in table.rows[4][-2]


def test_picks_on_recorded_times_are_beside_the_simulated_ones_with_their_source(shown, html):
    assert tables.reality(shown) == [] and "Reality check" not in html
    check = RealityCheck(
        meaning="picks", recording=Origin(**origin("forward_bf16", "recorded")), source=f"somebody {HOSTILE}",
        n_problems=185, candidates=13, efficiency=Summary(**summary(95.25)),
        interval={"mean": [94.25, 96.25]}, by_chance=Summary(**summary(72.5)),
    )  # fmt: skip
    changed = first(shown, manifest=shown.operations[0].manifest.model_copy(update={"reality_check": [check]}))
    (row,) = as_rows(tables.reality(changed)[0])
    assert row["times"] == "gfx950 (recorded)" and row["problems"] == 185 and row["candidates"] == 13
    assert row["mean, %"] == 95.25 and row["95 % interval of the mean"] == "94.2 to 96.2"
    assert row["any of them by chance, mean, %"] == 72.5 and row["source"].startswith("somebody")
    assert "Reality check" in page.render_page(changed, TEMPLATE)


def test_what_is_not_known_is_not_shown(tmp_path):
    reports, trainings = write_stages(tmp_path)
    for path in reports:
        content = json.loads(path.read_text())
        del content["reference_trainer"], content["noise_floor"]["perfect_model"]
        del content["of_perfect_model"]
        path.write_text(json.dumps(content))
    table = tables.bounds(results.read_results(reports, trainings))[0]
    assert [row[0] for row in table.rows] == ["model", "perfect selector", "against true best"]
    [metrics] = tables.metrics(results.read_results(reports, trainings))
    assert [row[1:] for row in metrics.rows if "perfect" in row[0]] == [("",) * (len(metrics.header) - 1)]


def test_the_noise_floor_is_shown_beside_each_way_to_choose(shown):
    [table, *_] = tables.choosers(shown)
    rows = {row["way to choose"]: row for row in as_rows(table)}
    floor = {name: row[tables.FLOOR] for name, row in rows.items()}
    assert floor["model"] == floor["best single kernel"] == 99.5
    assert floor["best of the model's top 3"] == 99.75 and floor["best of the model's top 5"] == ""
    assert rows["best single kernel"]["meaning"] == "one for all" and rows["model"]["meaning"] == ""


def test_networks_and_runs_are_listed_and_each_chooser_has_a_line(shown):
    [table, *_] = tables.networks(shown)
    assert [row[0] for row in table.rows] == [HOSTILE, "alexnet", "resnet50"]
    assert tables.runs(shown)[0].rows[0][3:7] == (88.125, 90.375, 85.625, 88.625)
    drawn = figures.distribution(shown)[0]
    assert len(set(re.findall(r'aria-roledescription="line mark"[^>]*stroke="(.*?)"', svg_of(drawn)))) == 4
    assert "model 81.8, best single kernel 50.2" in drawn.words
    assert "published elsewhere" in svg_of(figures.choosers(shown)[0])
    assert "published elsewhere" not in svg_of(figures.choosers(judged(shown, arch="sm_90"))[0])


def first(shown, **changes) -> results.Results:
    """The first operation alone, changed."""
    return dataclasses.replace(shown, operations=(dataclasses.replace(shown.operations[0], **changes),))


def judged(shown, **changes) -> results.Results:
    """The first operation alone, with other figures."""
    return first(shown, validation=shown.operations[0].validation.model_copy(update=changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"efficiency": Summary(mean=97.75, median=99.0, p10=87.0, min=0.0)}, None),
        ({"efficiency": Summary(mean=97.25, median=99.0, p10=87.0, min=0.0)}, "mean 97.2 %, 99.5 % is possible"),
        ({"efficiency": Summary(mean=97.75, median=99.0, p10=83.0, min=0.0)}, "10th percentile 83.0 %"),
        (
            {"efficiency": Summary(mean=97.75, median=99.0, p10=87.0, min=0.0), "interval": {"mean": [62.5, 98.0]}},
            "best single kernel has 62.8 %, the model at least 62.5 %",
        ),
    ],
)
def test_the_verdict_says_what_is_not_good_enough(shown, changes, reason):
    other = judged(shown, **changes)
    found = other.operations[0].validation
    assert list(verdict.faults(found)) == [] if reason is None else reason in verdict.verdict_words(found)
    (row,) = as_rows(decisions.verdict(other)[0])
    assert row["verdict"].startswith("good enough" if reason is None else "not good enough")
    assert row["worst networks"].startswith(f"{HOSTILE} 71.2 %, alexnet 93.5 %")


def test_the_kernels_to_ship_have_their_loss_price_and_names(shown, html):
    table = decisions.ship(shown)[0]
    (row, *_) = as_rows(table)
    names = shown.operations[0].kernels.pruned
    assert row["kernels"].startswith("2 of ") and row["loss on unseen problems, %"] == "1.50"
    assert row["loss on training problems, %"] == "0.75" and row["machine code, MB"] == "0.02 (estimated)"
    assert row["names"] == Copied("\n".join(names), "Copy 2 names")
    assert f'data-text="{names[0]}\n{names[1]}"' in html
    result = shown.operations[0]
    others = result.measured.candidates.assign(
        aliases=["one two" if name == names[0] else "" for name in result.measured.candidates["kernel"]], code_bytes=5e6
    )
    compiled = first(shown, measured=dataclasses.replace(result.measured, candidates=others))
    assert as_rows(decisions.ship(compiled)[0])[0]["machine code, MB"] == "10.00 (measured)"
    of_library = first(shown, kernels=result.kernels.model_copy(update={"arch": "sm_90_cudnn"}))
    (row,) = as_rows(decisions.ship(of_library)[0])
    assert row["names"].button == "Copy 2 names" and not {"machine code, MB", "CPU minutes to compile"} & row.keys()
    listed = as_rows(decisions.shipped(compiled)[0])
    assert [(row["name"].text, row["other names"]) for row in listed] == [(names[0], "one, two"), (names[1], "")]


def test_the_best_of_each_shape_is_the_fastest_that_ran_with_the_pick_and_the_library_beside_it(shown):
    found = learning_samples.measured("forward")
    rows = [row for row in as_rows(decisions.best(shown)[0]) if row["operation"] == "forward_bf16"]
    ran = found.status == 0
    fastest = [
        found.tflops[(found.problem == number) & ran].max()
        for number in found.problems.index[found.problems["split"] == "validation"]
        if ((found.problem == number) & ran).any()
    ]
    assert sorted(row["TFLOPS"] for row in rows) == sorted(fastest) and fastest
    for row in rows:
        name = re.search(r"--candidate (\S+)", row["replay"].text)[1]
        at = (found.tflops == row["TFLOPS"]) & (found.candidates["candidate"].to_numpy()[found.candidate] == name)
        assert found.latency_ms[at] * 1e3 == pytest.approx([row["µs"]])
        assert all(str(row[part]) in name for part in ("pipeline", "tile", "waves"))
        assert row["of the roofline, %"] > 0
    assert [row for row in rows if row["pick"] == "the best" and row["pick, %"] == 100.0]
    (other,) = [row for row in rows if row["pick, %"] == 81.25]
    label = measured.records(shown.operations[0].measured.candidates)[1]
    assert other["cuDNN, µs"] == 123.5 and other["pick"] == measured.short(label)
    assert any(row["pick"] == "" and row["cuDNN, µs"] == "" for row in rows)


def test_the_replay_line_measures_the_same_time_again(shown, capsys):
    """The sample's times are those of the simulated device with the seed that ``tileseer bench`` takes."""
    result = shown.operations[-1]
    labels = {row.candidate: row for row in measured.records(result.measured.candidates)}
    shapes = measured.records(result.measured.shapes)
    shape = next((shape for shape in shapes if "@splitk" in shape.candidate), shapes[0])
    line = decisions.replay(result, labels[shape.candidate], shape.problem)
    program, *words = line.split()
    assert program == "tileseer" and main([*words, "--json", "--config", str(ROOT / "config")]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["kernels"]
    assert row["kernel"] == shape.candidate and row["median_ms"] == pytest.approx(shape.latency_ms, rel=1e-9)
    recorded = judged(shown, device_kind="recorded").operations[0]
    label = labels[shape.candidate]
    assert "--driver driver.so --module kernels.so" in decisions.replay(recorded, label, shape.problem)
    assert decisions.replay(recorded, label._replace(tile=""), shape.problem) == ""


def test_labels_leave_out_what_all_names_share_and_tell_candidates_apart():
    for variant in ("forward", "bwd_weight"):
        candidates = learning_samples.measured(variant).candidates
        labels = measured.labels(candidates)
        assert len(set(map(measured.short, labels.itertuples()))) == len(candidates)
        assert not labels["flags"].str.contains("grouped|conv|bf16|nhwgc").any()
        assert labels["tile"].tolist() == [
            "x".join(map(str, row)) for row in candidates[["tile_m", "tile_n", "tile_k"]].to_numpy()
        ]
    split = labels["flags"].str.contains(r"splitk\d+")
    assert (split == (candidates["split_k"] > 1).to_numpy()).all() and split.any()


def test_candidates_of_the_same_time_share_a_shape(shown):
    seen = shown.operations[0].measured
    one = seen.candidates.iloc[:1]
    both = pd.concat([one, one.assign(candidate="zzz", pipeline="zzz")], ignore_index=True)
    equal = dataclasses.replace(seen, efficiency=np.ones((len(seen.shapes), 2)), candidates=both)
    changed = first(shown, measured=equal)
    winners = as_rows(decisions.wins(changed)[0])
    assert {row["shapes won, %"] for row in winners} == {50.0}
    assert {row["pipeline"] for row in winners} == {one["pipeline"].iloc[0], "zzz"}


def test_each_class_of_shapes_counts_its_shapes_once(shown):
    seen = shown.operations[0].measured
    for kind in measured.CLASSES:
        own = [mask for name, _, mask in measured.classes(seen.shapes) if name == kind]
        assert (np.sum(own, axis=0) == 1).all()
    assert np.allclose(seen.wins.sum(axis=1), 1.0)


def test_what_to_do_next_follows_from_the_figures(shown):
    done = {row["do"]: row["because"] for row in as_rows(decisions.following(judged(shown))[0])}
    assert done["add kernels"] == "no candidate can run 7 unseen layers"
    assert "10 to 20, gained 1.0 points" in done["measure more training problems of all kinds"]
    quiet = judged(shown, n_without_measurement=0, learning_curve=None, by_layer_kind={}, by_distance=None)
    assert decisions.following(quiet) == []
    parts = as_rows(decisions.losses(judged(shown))[0])
    assert sum(row["share of the loss, %"] for row in parts if row["part"].startswith("network")) == pytest.approx(100)


def test_failures_noise_and_drift_are_one_line_an_operation(shown):
    sample, product = learning_samples.measured(), learning_samples.product()
    ok = np.flatnonzero(sample.status == 0)
    drift = np.full(len(sample.status), np.nan)
    drift[ok] = 1.0
    drift[ok[0]] = 1.02
    health = measured.measured_of(dataclasses.replace(sample, sentinel=drift), product).health
    assert health["drifted"] == pytest.approx(100 / len(ok)) and health["timed"] == len(ok)
    nothing = np.full(len(sample.status), np.nan)
    unknown = measured.measured_of(dataclasses.replace(sample, sentinel=nothing, relative_error=nothing), product)
    error, drifted = "median standard error of a time, %", "pairs timed while the device had drifted, %"
    (row,) = as_rows(decisions.health(first(shown, measured=unknown))[0])
    assert row[error] == row[drifted] == "not known"
    assert as_rows(decisions.health(shown)[0])[0][error] == "1.25"
    failed = {"failed": {"crash": 10, "wrong_result": 2}}
    failing = first(shown, measured=dataclasses.replace(unknown, health=unknown.health | failed))
    assert as_rows(decisions.health(failing)[0])[0]["failed"] == "crash 10, wrong result 2"


def test_columns_of_one_value_fold_into_the_caption():
    table = PageTable("of a, x", ("name", "kind", "n"), (("a", "same", 1), ("b", "same", 2), ("c", "same", 2)))
    assert table.folded() == PageTable("of a, x; kind: same", ("name", "n"), (("a", 1), ("b", 2), ("c", 2)))
    few = PageTable("x", ("name", "kind"), (("a", "same"), ("b", "same")))
    assert few.folded() == few


def test_the_roof_is_the_product_s(shown):
    product = learning_samples.product()
    panel = figures.roofline(shown)[0]
    assert f"Roof {product.peak_tflops_16bit:,.0f} TFLOPS and {product.hbm_tb_per_s:g} TB/s" in panel.words


def test_a_worst_pick_is_explained(html):
    assert "tile_m +0.60 (128, best 16)" in html
    assert "farther from training than 98 % of training problems from one another" in html
    assert "outside: C 9000, trained on 1 to 4096; nearest: N=1 C=4096" in html


def test_without_datasets_their_sections_are_left_out(stages):
    html = page.render_page(results.read_results(*stages), TEMPLATE)
    assert '<section id="verdict"' in html
    for name in ("wins", "shapes", "ship"):
        assert f'id="{name}"' not in html and f'href="#{name}"' not in html


def test_a_dataset_of_another_device_or_operation_is_refused(stages, tmp_path, monkeypatch):
    for folder in stages[1]:
        (folder / model_files.HARDWARE).write_text(learning_samples.product().model_dump_json())
    found = learning_samples.measured("forward")
    for changed, message in (({"device": "other"}, "device is 'other'"), ({"operation": "x_bf16"}, "operation is")):
        monkeypatch.setattr(results.Dataset, "read", lambda path, c=changed: dataclasses.replace(found, **c))
        with pytest.raises(UserError, match=message):
            results.read_results(*stages, [tmp_path / "d.parquet"])
    monkeypatch.setattr(results.Dataset, "read", lambda path: found)
    assert results.read_results(*stages, [tmp_path / "d.parquet"]).operations[0].measured is not None


def test_the_times_of_a_library_are_those_of_the_recording(tmp_path):
    stages = write_stages(tmp_path)
    (tmp_path / "recorded/forward_bf16").mkdir(parents=True)
    about = {"arch": "gfx950", "device": "x", "operations": ["forward_bf16"], "latency": "a median"}
    (tmp_path / "recorded/recording.json").write_text(json.dumps(about | {"provenance": {"gpu": "one of them"}}))
    table = tmp_path / "recorded/forward_bf16/cudnn.csv"
    table.write_text("problem_key,samples,median_us\nabc,15,21.25\ndef,0,\n")
    found = results.read_results(*stages, (), tmp_path / "recorded")
    (told,) = tables.recorded(found)
    assert told.rows == (("times", "a median"), ("gpu", "one of them"))
    assert tables.recorded(results.read_results(*stages)) == []
    assert [result.library_us for result in found.operations] == [{"abc": 21.25}, {}, {}]
    table.write_text("problem_key,samples\nabc,15\n")
    with pytest.raises(UserError, match="median_us"):
        results.read_results(*stages, (), tmp_path / "recorded")


def test_the_curve_of_a_prior_has_both_ways_at_each_share_and_their_intervals(shown):
    panel = figures.transfer(shown)[0]
    rows = panel.chart.to_dict()["data"]["values"]
    assert [(row["share"], row["which"], row["mean"]) for row in rows] == [
        ("0 %", "with the prior", 70.0), ("5 %", "with the prior", 85.0), ("5 %", "without it", 60.5)
    ]  # fmt: skip
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    assert "forward_fp16 gfx942 (simulated)" in panel.words


def test_the_learning_curve_is_that_of_measuring_or_of_shares_of_the_problems(shown):
    assert figures.learning_curve(shown)[0].words == "After 300 of 1000 pairs, mean 82.0 percent."
    (panel,) = figures.learning_curve(judged(shown, active=None))
    assert panel.words == "With 20 training problems, mean 82.0 percent."
    assert figures.learning_curve(judged(shown, active=None, learning_curve=None)) == []
