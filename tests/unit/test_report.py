"""The report page: what it shows, that it is complete in itself, and that the same results give the same bytes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.util
import json
import re
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path

import learning_samples
import numpy as np
import pandas as pd
import pytest

from tileseer.core.errors import UserError
from tileseer.devices.base import DEVICE_KINDS
from tileseer.model import model_files
from tileseer.model.schema import Origin, RealityCheck, Summary
from tileseer.report import figures, measured, page, results, tables
from tileseer.validation.schema import Pick

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
        "pipelines": {"compv3": {"picked": 1000, "best": 731}, "mem": {"picked": 431, "best": 700}},
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
        "by_distance_to_training": {"nearest quarter": stratum(350, 96.5)},
        "reference_trainer": {
            "meaning": "97 features",
            **ranking(91.75),
            "interval": {},
            "ahead": {"meaning": "points", "mean": 2.5, "interval": [1.875, 3.125]},
        },
        "leave_network_out": {**learnt(93.25), "folds": 5, "network_families": 7, "n_problems": 1431},
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


def with_measurements(stages: results.Results) -> results.Results:
    """The results with what a small simulated dataset shows of each direction."""
    operations = []
    for result in stages.operations:
        found = learning_samples.measured(result.validation.operation.removesuffix("_bf16"))
        error = np.full(len(found.status), 0.0125)
        assert found.problems["layer"].iloc[3] == "layer3"
        problems = found.problems.assign(layer=[HOSTILE if x == "layer3" else x for x in found.problems["layer"]])
        found = dataclasses.replace(found, problems=problems, relative_error=error)
        shown = measured.of(found, learning_samples.product())
        keys = shown.shapes["problem_key"].tolist()
        picks = {
            keys[0]: Pick(candidate=shown.shapes["candidate"][0], efficiency=100.0, ties=17, tied=True),
            keys[1]: Pick(candidate="another_kernel", efficiency=81.25, ties=3, tied=False),
        }
        judged = result.validation.model_copy(update={"picks": picks})
        library = {keys[1]: 123.5}
        operations.append(dataclasses.replace(result, validation=judged, measured=shown, library_us=library))
    return dataclasses.replace(stages, operations=tuple(operations))


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> results.Results:
    return with_measurements(results.load(*write_stages(tmp_path_factory.mktemp("stages"))))


def svg_of(panel: figures.Panel) -> str:
    return figures.svg(figures.spec(panel), "x")


@pytest.fixture(scope="module")
def html(shown) -> str:
    return page.render(shown, TEMPLATE)


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


def test_every_section_shows_its_figure_and_its_tables(html, shown):
    for section in page.SECTIONS:
        inner = html.split(f'<section id="{section.name}"')[1].split("</section>")[0]
        assert inner.count("<svg ") == (len(shown.operations) if section.draw else 0), section.name
        assert inner.count('class="spec"') == inner.count("<svg "), section.name
        wanted = sum(len(tabulate(shown)) for tabulate in section.tabulate)
        assert inner.count("<table>") == wanted, section.name
        assert section.draw or wanted


def test_every_figure_and_table_says_what_it_shows_and_that_it_is_simulated(html):
    parsed = Page(html)
    panels = [attributes["aria-label"] for tag, attributes in parsed.elements if attributes.get("role") == "img"]
    html = SCRIPT.sub("", html)
    assert len(panels) == html.count("<svg ")
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    assert len(captions) == html.count("<table>")
    assert all("(simulated)" in label for label in panels + captions)
    assert html.count("<th scope=") == html.count("<th ")


def test_the_numbers_of_the_validation_report_are_on_the_page(html):
    texts = Page(html).texts
    numbers = ("1,431", "94.2", "83.0", "63.5", "62.8", "41.5", "51.5", "12.2", "54,321", "97.2")
    worst = ("picked_kernel", "fastest_kernel", "N=1 C=64 Hi=14 stride_h=2 pad_w=1")
    for expected in (*numbers, *worst, "one for all"):
        assert expected in texts, expected


def test_the_kind_of_device_stands_before_everything_else(html):
    assert html.index("simulated – no GPU was measured") < html.index("<main>")
    assert "fitted to one case only" in html.split("<main>")[0]


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_only_simulated_times_are_called_simulated(tmp_path, kind):
    report = tmp_path / "v.json"
    report.write_text(json.dumps(validation("forward_bf16", kind)))
    training = write_training(tmp_path / "t", "forward_bf16", kind)
    html = page.render(results.load([report], [training]), TEMPLATE)
    assert page.DEVICE_NOTES[kind][0] in html
    assert f"({kind})" in html
    assert ("simulated" in html) == (kind == "simulated")


def test_names_cannot_become_markup(html):
    parsed = Page(html)
    assert not {tag for tag, _ in parsed.elements} & {"img", "iframe", "object", "link", "foreignobject"}
    attributes = [attributes for tag, attributes in parsed.elements if tag == "script"]
    assert attributes.count({}) == 2
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


def test_only_our_two_scripts_may_run_and_none_may_evaluate_text(html):
    policy = re.search(r"script-src ([^;]*);", html)[1].split()
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in SCRIPT.findall(html)]
    assert policy == [f"'sha256-{digest}'" for digest in digests]
    assert len(policy) == 2


def test_what_the_browser_draws_is_what_was_drawn(html, shown):
    specs = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', html)
    panels = [panel for section in page.SECTIONS if section.draw for panel in section.draw(shown)]
    assert [json.loads(text) for text in specs] == [figures.spec(panel) for panel in panels]


def test_the_same_results_give_the_same_bytes(html, stages):
    reports, trainings = stages
    again = page.render(with_measurements(results.load(reports[::-1], trainings[::-1])), TEMPLATE)
    assert again == html


def test_bars_are_ordered_and_cut(shown):
    lowest = figures.networks(shown)[0]
    assert lowest.words.index(HOSTILE) < lowest.words.index("alexnet") < lowest.words.index("resnet50")
    drawn = svg_of(figures.importances(shown)[0])
    assert f">feature_{figures.TOP_FEATURES - 1:02}<" in drawn
    assert f">feature_{figures.TOP_FEATURES:02}<" not in drawn


def test_whole_networks_and_the_distance_to_training_are_drawn(shown):
    cost = figures.end_to_end(shown)[0]
    assert cost.words == "End to end in percent of 1 runs of networks, the lowest: resnet50, training 88.1."
    drawn = svg_of(cost)
    assert ">88.1<" in drawn and ">resnet50, training<" in drawn
    near = figures.coverage(shown)[0]
    assert "above 0.5, up to 1: 7 problems, mean 95.0" in near.words
    assert near.words.endswith("kind not trained on: 3 problems, mean 65.0.")
    assert svg_of(near).count('aria-roledescription="bar"') == 2


def test_each_chooser_has_a_line_and_each_pipeline_two_bars(shown):
    drawn = figures.distribution(shown)[0]
    assert len(set(re.findall(r'aria-roledescription="line mark"[^>]*stroke="(.*?)"', svg_of(drawn)))) == 4
    assert "model 81.8, best single kernel 50.2" in drawn.words
    drawn = figures.pipelines(shown)[0]
    assert svg_of(drawn).count('aria-roledescription="bar"') == 4
    assert "mem best 700, picked 431" in drawn.words


def test_operations_come_in_the_order_of_the_directions(shown):
    assert [result.validation.operation for result in shown.operations] == list(OPERATIONS)


def test_a_field_that_is_missing_or_wrong_is_named(stages):
    reports, trainings = stages
    for field, value in (("top1", None), ("device_kind", "guessed"), ("baselines", {"x": {"meaning": 1}})):
        broken = deepcopy(validation("forward_bf16"))
        broken[field] = value
        reports[0].write_text(json.dumps(broken))
        with pytest.raises(UserError, match=rf"forward_bf16\.json: {field}"):
            results.load(reports, trainings)


def test_another_device_is_refused(stages):
    reports, trainings = stages
    reports[1].write_text(json.dumps({**validation(OPERATIONS[1]), "device": "other"}))
    with pytest.raises(UserError, match="device is 'other'"):
        results.load(reports, trainings)


def test_every_report_needs_its_training(stages):
    reports, trainings = stages
    for given in ((reports, trainings[:2]), (reports[:2], trainings), ([*reports, reports[0]], trainings)):
        with pytest.raises(UserError, match="one of each for every operation"):
            results.load(*given)


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing }}"])
def test_a_broken_template_is_named(shown, tmp_path, text):
    template = tmp_path / "broken.j2"
    template.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(template))):
        page.render(shown, template)


def test_a_missing_template_is_named(shown, tmp_path):
    with pytest.raises(UserError, match="there has to be a template"):
        page.render(shown, tmp_path / "none.j2")


def test_the_script_writes_the_page(stages, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("report_script", ROOT / "workflow" / "scripts" / "report.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    reports, trainings = ([str(path) for path in paths] for paths in stages)
    arguments = ["--validation", *reports, "--training", *trainings, "--template", str(TEMPLATE)]
    html = page.render(results.load(*stages), TEMPLATE)
    output = tmp_path / "reports" / "gfx950.html"
    assert script.main([*arguments, "--page", str(output)]) == 0
    assert output.read_text(encoding="utf-8") == html
    assert "simulated" in capsys.readouterr().out
    stages[0][0].write_text("{")
    assert script.main([*arguments, "--page", str(output)]) == 2
    assert "is not JSON" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8") == html


def test_the_model_stands_beside_its_bounds_and_the_reference(shown):
    table = tables.bounds(shown)[0]
    assert [row[0] for row in table.rows] == [
        "model", "perfect selector", "perfect model", "against true best", "reference trainer",
        "networks left out in turn",
    ]  # fmt: skip
    assert table.rows[0][-2] == "93.1 to 95.4"
    assert "2.50 points ahead (1.88 to 3.12)" in table.rows[4][-2]


def test_picks_on_recorded_times_stand_beside_the_simulated_ones_with_their_source(shown, html):
    assert tables.reality(shown) == [] and "Reality check" not in html
    check = RealityCheck(
        meaning="picks", recording=Origin(**origin("forward_bf16", "recorded")), source=f"somebody {HOSTILE}",
        n_problems=185, candidates=13, efficiency=Summary(**summary(95.25)),
        interval={"mean": [94.25, 96.25]}, by_chance=Summary(**summary(72.5)),
    )  # fmt: skip
    first = shown.operations[0]
    first = dataclasses.replace(first, manifest=first.manifest.model_copy(update={"reality_check": [check]}))
    changed = dataclasses.replace(shown, operations=(first, *shown.operations[1:]))
    row = dict(zip((table := tables.reality(changed)[0]).header, table.rows[0], strict=True))
    assert row["times"] == "gfx950 (recorded)" and row["problems"] == 185 and row["candidates"] == 13
    assert row["mean, %"] == 95.25 and row["95 % interval of the mean"] == "94.2 to 96.2"
    assert row["any of them by chance, mean, %"] == 72.5 and row["source"].startswith("somebody")
    assert "Reality check" in page.render(changed, TEMPLATE)


def test_what_is_not_known_is_not_shown(tmp_path):
    reports, trainings = write_stages(tmp_path)
    for path in reports:
        content = json.loads(path.read_text())
        del content["reference_trainer"], content["leave_network_out"], content["noise_floor"]["perfect_model"]
        del content["of_perfect_model"]
        path.write_text(json.dumps(content))
    table = tables.bounds(results.load(reports, trainings))[0]
    assert [row[0] for row in table.rows] == ["model", "perfect selector", "against true best"]
    [metrics] = tables.metrics(results.load(reports, trainings))
    assert [row[1:] for row in metrics.rows if "perfect" in row[0]] == [("",) * (len(metrics.header) - 1)]


def test_the_noise_floor_stands_beside_baselines_networks_and_learning_curves(shown):
    [table, *_] = tables.choosers(shown)
    floor = {row[0]: row[-1] for row in table.rows}
    assert floor["model"] == floor["best single kernel"] == 99.5
    assert floor["best of the model's top 3"] == 99.75 and floor["best of the model's top 5"] == ""
    assert tables.runs(shown)[0].rows[0][3:7] == (88.125, 90.375, 85.625, 88.625)
    of_shares, of_rounds = tables.learning_curve(shown)[0], tables.learning_curve(shown)[-1]
    assert {row[-1] for row in of_shares.rows} == {99.5} and {row[-1] for row in of_rounds.rows} == {96.375}


def test_the_learning_curve_of_active_measuring_is_shown_where_there_is_one(tmp_path):
    reports, trainings = write_stages(tmp_path)
    content = json.loads(reports[0].read_text())
    for path in reports[1:]:
        known = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in known.items() if k not in ("active", "learning_curve")}))
    del content["learning_curve"]
    rounds = [active_round(i + 1, 50 * i + 50, 5.0 * i + 5, 90.0 + i) for i in (0, 1)]
    content["active"] = {"supported_training_pairs": 1000, "rounds": rounds}
    reports[0].write_text(json.dumps(content))
    [table] = tables.learning_curve(results.load(reports, trainings))
    assert [row[:4] for row in table.rows] == [("1", 50, 5.0, 90.0), ("2", 100, 10.0, 91.0)]
    assert len(figures.learning_curve(results.load(reports, trainings))) == 1


def test_the_best_of_each_shape_is_the_fastest_that_ran(shown):
    found = learning_samples.measured("forward")
    rows = [row for row in tables.best(shown)[0].rows if row[1] == "forward_bf16"]
    held_out = found.problems.index[found.problems["split"] == "validation"]
    fastest = {
        number: found.tflops[(found.problem == number) & (found.status == 0)].max()
        for number in held_out
        if ((found.problem == number) & (found.status == 0)).any()
    }
    assert len(rows) == len(fastest) > 0
    assert sorted(row[5] for row in rows) == sorted(fastest.values())
    for row in rows:
        at = (found.tflops == row[5]) & (found.candidates["candidate"].to_numpy()[found.candidate] == row[3])
        assert found.latency_ms[at] * 1e3 == pytest.approx([row[6]])
        assert 0 < row[7] <= 100


def test_groups_and_statuses_count_every_pair(shown):
    found, seen = learning_samples.measured("forward"), shown.operations[0].measured
    assert seen.groups["pairs"].sum() == seen.statuses.to_numpy().sum() == len(found.status)
    assert seen.groups["candidates"].sum() == len(found.candidates)
    assert seen.groups["wins"].sum() == len(seen.shapes)
    assert (seen.noise["median"] == 1.25).all() and seen.noise["pairs"].sum() == (found.status == 0).sum()


def test_options_are_named(shown):
    candidates = learning_samples.measured("bwd_weight").candidates
    words = measured.options(candidates)
    assert all(("split-K" in text) == (split > 1) for text, split in zip(words, candidates["split_k"], strict=True))
    one = candidates.iloc[:1].assign(double_smem_buffer=False, num_groups_to_merge=4, two_stage=True, split_k=1)
    assert measured.options(one) == ["two-stage, 4 groups merged"]


def test_the_roof_is_the_product_s(shown):
    product = learning_samples.product()
    panel = figures.roofline(shown)[0]
    assert f"Roof {product.peak_tflops_16bit:,.0f} TFLOPS and {product.hbm_tb_per_s:g} TB/s" in panel.words


def test_published_figures_are_marked_as_of_elsewhere(html, shown):
    table = tables.published(shown)[0]
    assert "not comparable" in table.caption and results.PUBLISHED_IN in table.caption
    assert ("forward_bf16", 93.05, 96.8, 79.9) in table.rows
    assert "published elsewhere" in svg_of(figures.choosers(shown)[0])


def test_a_worst_pick_is_explained(html):
    assert "tile_m +0.60 (128, best 16)" in html
    assert "farther from training than 98 % of training problems from one another" in html
    assert "outside: C 9000, trained on 1 to 4096; nearest: N=1 C=4096" in html


def test_without_datasets_their_sections_are_left_out(stages):
    html = page.render(results.load(*stages), TEMPLATE)
    assert '<section id="results"' in html
    for name in ("best", "wins", "roofline", "resources", "support", "noise", "failures"):
        assert f'id="{name}"' not in html and f'href="#{name}"' not in html


def test_a_dataset_of_another_device_or_operation_is_refused(stages, tmp_path, monkeypatch):
    for folder in stages[1]:
        (folder / model_files.HARDWARE).write_text(learning_samples.product().model_dump_json())
    found = learning_samples.measured("forward")
    for changed, message in (({"device": "other"}, "device is 'other'"), ({"operation": "x_bf16"}, "operation is")):
        monkeypatch.setattr(results.schema, "load", lambda path, c=changed: dataclasses.replace(found, **c))
        with pytest.raises(UserError, match=message):
            results.load(*stages, [tmp_path / "d.parquet"])
    monkeypatch.setattr(results.schema, "load", lambda path: found)
    assert results.load(*stages, [tmp_path / "d.parquet"]).operations[0].measured is not None


def test_the_best_of_each_shape_has_the_pick_and_the_library_beside_it(shown):
    (table,) = tables.best(shown)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    own = [row for row in rows if row["operation"] == "forward_bf16"]
    assert [row for row in own if row["the model's pick"] == "the best" and row["pick, %"] == 100.0]
    (other,) = [row for row in own if row["the model's pick"] == "another_kernel"]
    assert other["pick, %"] == 81.25 and other["cuDNN, µs"] == 123.5
    assert any(row["the model's pick"] == "" and row["cuDNN, µs"] == "" for row in own)


def test_what_only_a_compiler_knows_is_shown_where_it_is_known(shown):
    assert tables.resources(shown) == []
    result = shown.operations[0]
    kernels = result.measured.resources
    compiled = kernels.assign(vgpr_spills=[4.0, *[0.0] * (len(kernels) - 1)], agprs=64.0)
    known = dataclasses.replace(result, measured=dataclasses.replace(result.measured, resources=compiled))
    (table,) = tables.resources(dataclasses.replace(shown, operations=(known,)))
    rows = {row[0]: row for row in table.rows}
    assert set(rows) == {"no spilled registers", "spilled registers", "accumulation registers"}
    assert rows["spilled registers"][1:4] == (1, 4.0, pytest.approx(kernels["efficiency"].iloc[0]))


def test_the_times_of_a_library_are_those_of_the_recording(tmp_path):
    stages = write_stages(tmp_path)
    (tmp_path / "recorded/forward_bf16").mkdir(parents=True)
    about = {"arch": "gfx950", "device": "x", "operations": ["forward_bf16"], "latency": "a median"}
    (tmp_path / "recorded/recording.json").write_text(json.dumps(about | {"provenance": {"gpu": "one of them"}}))
    table = tmp_path / "recorded/forward_bf16/cudnn.csv"
    table.write_text("problem_key,samples,median_us\nabc,15,21.25\ndef,0,\n")
    found = results.load(*stages, (), tmp_path / "recorded")
    (told,) = tables.recorded(found)
    assert told.rows == (("times", "a median"), ("gpu", "one of them"))
    assert tables.recorded(results.load(*stages)) == []
    assert [result.library_us for result in found.operations] == [{"abc": 21.25}, {}, {}]
    table.write_text("problem_key,samples\nabc,15\n")
    with pytest.raises(UserError, match="median_us"):
        results.load(*stages, (), tmp_path / "recorded")


def test_the_curve_of_a_prior_has_both_ways_at_each_share_and_their_intervals(shown):
    panel = figures.transfer(shown)[0]
    rows = panel.chart.to_dict()["data"]["values"]
    assert [(row["share"], row["which"], row["mean"]) for row in rows] == [
        ("0 %", "with the prior", 70.0),
        ("5 %", "with the prior", 85.0),
        ("5 %", "without it", 60.5),
    ]
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    assert "forward_fp16 gfx942 (simulated)" in panel.words


def test_the_learning_curve_is_that_of_measuring_or_of_shares_of_the_problems(shown):
    panels = figures.learning_curve(shown)
    assert panels[0].words == "After 300 of 1000 pairs, mean 82.0 percent."
    result = shown.operations[0]
    passive = dataclasses.replace(result, validation=result.validation.model_copy(update={"active": None}))
    (panel,) = figures.learning_curve(dataclasses.replace(shown, operations=(passive,)))
    assert panel.words == "With 20 training problems, mean 82.0 percent."


def test_drift_is_drawn_by_the_change_of_the_sentinel(shown):
    sample = learning_samples.measured()
    ok = np.flatnonzero(sample.status == 0)
    drift = np.full(len(sample.status), np.nan)
    drift[ok] = 1.0
    drift[ok[:2]] = 1.02, 0.5
    found = measured.of(dataclasses.replace(sample, sentinel=drift), learning_samples.product())
    result = dataclasses.replace(shown.operations[0], measured=found)
    (panel,) = figures.drift(dataclasses.replace(shown, operations=(result,)))
    share = 100 * (len(ok) - 2) / len(ok)
    assert panel.words == f"For {share:.1f} percent of {len(ok)} pairs the sentinel's time was within 0.3 percent."
    drawn = json.dumps(panel.chart.to_dict())
    assert '"+1 to +3"' in drawn and '"below -3"' in drawn and '"above +3"' not in drawn
    unknown = measured.of(dataclasses.replace(sample, sentinel=None), learning_samples.product())
    result = dataclasses.replace(result, measured=unknown)
    assert figures.drift(dataclasses.replace(shown, operations=(result,))) == []


def test_failures_are_drawn_as_shares_of_what_was_let_through(shown):
    result = shown.operations[0]
    statuses = pd.DataFrame({"ok": [90, 40], "unsupported": [500, 0], "crash": [10, 0]}, index=["mem", "compv3"])
    known = dataclasses.replace(result, measured=dataclasses.replace(result.measured, statuses=statuses))
    (panel,) = figures.failures(dataclasses.replace(shown, operations=(known,)))
    assert panel.words == "Most often: mem crash, 10.00 percent of its pairs."
    nothing = dataclasses.replace(result.measured, statuses=statuses.drop(columns="crash"))
    none = dataclasses.replace(shown, operations=(dataclasses.replace(result, measured=nothing),))
    assert figures.failures(none) == []
