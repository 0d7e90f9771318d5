"""The report page: what it shows, that it is complete in itself, and that the same results give the same bytes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import dataset_files
import learning_samples
import numpy as np
import pandas as pd
import pytest
from published_models import evaluation
from stages_by_hand import main_of

from tileseer.core.checkout import Source
from tileseer.core.errors import UserError
from tileseer.data.provenance import Recording
from tileseer.learn import model_files
from tileseer.learn.model_schema import Manifest, Origin, RealityCheck, Summary
from tileseer.measure.device import DEVICE_KINDS, STATUSES
from tileseer.report import figures, kernels, losses, measured, page, results, summary, tables
from tileseer.report.tables import Badge, Copied, PageTable
from tileseer.serve.evaluation import Evaluation, Pick
from tileseer.serve.serving_files import Kernels

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "workflow" / "templates" / "report.html.j2"
CALL = "tileseer run --arch gfx950 --configfile mine.yaml"
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")
HOSTILE = "<script>alert(1)</script>"
ATTRIBUTE = '"><img src=x onerror=alert(2)>'
VOID = {"meta", "link", "br", "img", "input"}
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def figures_of(mean: float) -> dict:
    return {"mean": mean, "median": mean + 1.5, "p10": mean - 11.25, "min": mean - 30.75}


def origin(operation: str, kind: str = "simulated") -> dict:
    return {"operation": operation, "arch": "gfx950", "device": "gfx950_mi355x", "device_kind": kind}


def part(layers: int, mean: float) -> dict:
    return {"layers": layers, "efficiency": figures_of(mean), "possible": figures_of(99.25)}


def kind(layers: int, mean: float) -> dict:
    choice = {"pick": "slow", "best": "fast", "layers": 12, "share": 75.0, "loss": 20.0}
    return {**part(layers, mean), "best_of_2": figures_of(99.0), "share_of_time": 40.0, "worst_choice": choice}


def manifest(operation: str, kind: str = "simulated") -> dict:
    counts = {
        "data_rows": 99999, "pool_rows": 88888, "valid_rows": 77777, "training_rows": 54321, "unique_problems": 987,
        "layer_families": 900, "candidates": 2222, "total_n_estimators": 600,
    }  # fmt: skip
    made = {"lightgbm": "4.7.0", "settings": {}, "out_of_fold_efficiency": figures_of(95.5)}
    return {**origin(operation, kind), **counts, **made}


def shipped(seen: measured.Measured, about: dict) -> Kernels:
    """A kernel list whose set is two kernels."""
    names = sorted(set(seen.candidates["kernel"]))
    entries = [{"kernel": name, "registry_key": {}} for name in names]
    few = {"pool_size": len(names), "pruned_size": 2, "pruned": names[1::-1], "kernels": entries}
    within = {"train": figures_of(99.25), "validation": figures_of(98.5)}
    return Kernels(**about, **few, meaning="few", allowed_loss=0.01, oracle_within_pruned=within)


def evaluated_picks(about: dict, picks: dict[str, Pick]) -> Evaluation:
    """An evaluation of what ships, with one bad network and one bad layer."""
    return evaluation(
        Origin(**about),
        first=figures_of(98.25), interval={"mean": [97.125, 99.375]}, best_of_2=figures_of(98.5),
        best_of_3=figures_of(98.75), layers=1424, without_candidate=7, covered_time=97.75, candidates=2222, timed=99.5,
        noise_floor={"basis": "noise-free times", "perfect_selector": figures_of(99.75)},
        by_kind={"3x3": kind(900, 94.0)},
        by_evidence={
            name: {"share": 10.0 * layers, "by_time": mean, **part(layers, mean)}
            for name, layers, mean in (("inside", 7, 95.0), ("outside", 3, 65.0))
        },
        networks=[{
            "network": HOSTILE, "efficiency": 91.75, "run": "training 8", "layers": 20, "without_candidate": 2,
            "failed": 1,
        }],
        worst=[{
            "network": HOSTILE, "layer": ATTRIBUTE,
            "problem": "N=1 C=64 Di=1 Hi=14 Z=1 stride_h=2 stride_w=1 pad_h=0 pad_w=1 dilation_h=1",
            "pick": "picked_kernel", "best": "fastest_kernel", "efficiency": 60.5,
            "reasons": [{"feature": "tile_m", "contribution": 0.596, "of_pick": 128.0, "of_best": 16.0}],
        }],
        baselines={
            "best_single_kernel": {
                "meaning": "one for all", "candidates": {"2d": "k"}, "efficiency": figures_of(62.75), "speed": 1.59,
            },
            "random_supported": {"meaning": "any", "efficiency": figures_of(33.5), "speed": 2.97},
            "hand_rule": {"meaning": "reuse", "efficiency": figures_of(55.5), "speed": 1.79},
        },
        harm={},
        libraries=[{"library": "cuDNN", "layers": 1400, "speed": 1.0625, "slower": 12.5}],
        picks=picks,
    )  # fmt: skip


def result(operation: str, kind: str = "simulated") -> results.OperationResult:
    """What the stages made of one operation; its measurements are those of a small simulated dataset."""
    about = origin(operation, kind)
    dataset = learning_samples.measured(operation.removesuffix("_bf16"))
    error = np.full(len(dataset.status), 0.0125)
    problems = dataset.problems.assign(layer=dataset.problems["layer"].replace("layer3", HOSTILE))
    seen = measured.measured_of(
        dataclasses.replace(dataset, problems=problems, relative_error=error), learning_samples.product()
    )
    assert HOSTILE in set(seen.shapes["layer"])
    keys = seen.shapes["problem_key"].tolist()
    chosen = {
        keys[0]: Pick(candidate=seen.shapes["candidate"][0], efficiency=100.0),
        keys[1]: Pick(candidate=seen.candidates["candidate"][1], efficiency=81.25),
    }
    return results.OperationResult(
        Manifest(**manifest(operation, kind)),
        {f"feature_{i:02}": 1000 - 10 * i for i in range(30)},
        seen,
        Recording(
            arch="gfx950",
            device="gfx950_mi355x",
            device_kind=kind,
            operations=[operation],
            measurement_id="1f" * 8,
            latency="a mean",
            provenance={},
        ),
        shipped(seen, about),
        evaluated_picks(about, chosen),
        pd.Series({keys[1]: 123.5}),
    )


def sample(kind: str = "simulated") -> results.Results:
    """The results of three operations."""
    source = Source(commit="c0ffee" * 6 + "abcd", date="2026-11-20", uncommitted=[])
    made = tuple(result(operation, kind) for operation in OPERATIONS)
    return results.Results("gfx950", "gfx950_mi355x", kind, made, source, "5e771265" * 8)


def written(folder: Path) -> results.Inputs:
    """The files of the stages for two operations."""
    paths: dict[str, list[Path]] = {}

    def write(kind: str, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.setdefault(kind, []).append(path)

    for operation in OPERATIONS[:2]:
        one = result(operation)
        training = folder / "training" / operation
        write("manifest", training / model_files.MANIFEST, one.manifest.model_dump_json())
        write("more", training / model_files.IMPORTANCES, json.dumps(one.importances))
        write("more", training / model_files.HARDWARE, learning_samples.product().model_dump_json())
        world = learning_samples.measured(operation.rpartition("_")[0])
        few = shipped(measured.measured_of(world, learning_samples.product()), origin(operation))
        write("kernels", folder / "serving" / operation / "kernels.json", few.model_dump_json())
        write("evaluation", folder / "evaluation" / f"{operation}.json", one.evaluation.model_dump_json())
        path = dataset_files.dataset(folder / "datasets" / operation, device="gfx950_mi355x", world=world)
        paths.setdefault("dataset", []).append(path)
    training = [path.parent for path in paths["manifest"]]
    return results.Inputs(training, paths["dataset"], paths["kernels"], paths["evaluation"])


def read(inputs: results.Inputs) -> results.Results:
    return inputs.read(Source(), "0" * 64)


def as_rows(table: PageTable) -> list[dict]:
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


@pytest.fixture(scope="module")
def shown() -> results.Results:
    return sample()


def first(shown, **changes) -> results.Results:
    """The first operation alone, changed."""
    return dataclasses.replace(shown, operations=(dataclasses.replace(shown.operations[0], **changes),))


def evaluated(shown, **changes) -> results.Results:
    """The first operation alone, with other figures of what ships."""
    return first(shown, evaluation=shown.operations[0].evaluation.model_copy(update=changes))


@pytest.fixture(scope="module")
def html(shown) -> str:
    return page.render_page(shown, TEMPLATE, CALL)


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


def test_the_page_begins_with_the_verdict_and_folds_the_appendix(html, shown):
    names = [section.name for section in page.SECTIONS + page.APPENDIX]
    assert re.findall(r'<section id="(\w+)"', html) == ["verdict", *names]
    assert re.findall(r'<details class="part">\n.*\n<section id="(\w+)"', html) == names[len(page.SECTIONS) :]
    for section in page.SECTIONS + page.APPENDIX:
        inner = html.split(f'<section id="{section.name}"')[1].split("</section>")[0]
        assert inner.count("<svg ") == sum(len(draw(shown)) for draw in section.draw), section.name
        assert inner.count('class="spec"') == inner.count("<svg "), section.name
        tabulated = sum(len(tabulate(shown)) for tabulate in section.shown + section.folded)
        assert inner.count("<caption>") == tabulated, section.name


def test_every_figure_and_table_says_what_it_shows_and_that_it_is_simulated(html):
    parsed = Page(html)
    panels = [attributes["aria-label"] for tag, attributes in parsed.elements if attributes.get("role") == "img"]
    html = SCRIPT.sub("", html)
    assert len(panels) == html.count("<svg ")
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    assert len(captions) + 1 == html.count("<table "), "the table of verdicts has the headline"
    assert all("(simulated)" in label for label in panels + captions)
    assert all("without 7 layers that have no candidate" in label for label in panels)
    assert html.count("<th scope=") == html.count("<th ")


def test_the_numbers_are_on_the_page(html):
    texts = Page(html).texts
    numbers = ("1,424", "98.2", "98.5", "98.8", "62.8", "54,321", "1.062")
    worst = ("picked_kernel", "fastest_kernel", "N=1 C=64 Hi=14 stride_h=2 pad_w=1")
    assert '<span class="badge limited">as good as the simulation can tell</span>' in html
    assert "<code>tileseer run results/models/gfx950 --configfile config/hip.yaml</code>" in html
    assert "tile_m +0.60 (128, best 16)" in html
    for expected in (*numbers, *worst, "one for all"):
        assert expected in texts, expected


def test_the_foot_names_commit_settings_versions_and_data(shown, html):
    foot = " ".join(html.partition("<footer>")[2].partition("</footer>")[0].split())
    assert "c0ffeec0ffee</span> of 2026-11-20," in foot and "settings 5e7712655e77" in foot
    assert "LightGBM 4.7.0" in foot and f"Measurement {'1f' * 8}." in foot
    provenance = {"source": f"somebody {HOSTILE}", "date": "2026-11-19"}
    recording = Recording(
        arch="gfx950", device="gfx950_mi355x", operations=["forward_bf16"], latency="a median", provenance=provenance
    )
    replayed = first(shown, data=recording)
    changed = dataclasses.replace(replayed, source=Source(commit="beef" * 10, date="2026-11-20", uncommitted=["a"]))
    foot = page.render_page(changed, TEMPLATE, CALL).partition("<footer>")[2]
    assert "with 1 uncommitted files" in foot and "Times recorded on 2026-11-19: somebody &lt;script" in foot
    (table,) = tables.recorded(changed)
    assert table.rows == (("times", "a median"), ("source", provenance["source"]), ("date", "2026-11-19"))


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_only_simulated_times_are_called_simulated(kind):
    text = page.render_page(first(sample(kind)), TEMPLATE, CALL)
    assert ("simulated" in text) == ("Simulated:" in text) == (kind == "simulated")
    assert f"({kind})" in text and summary.LIMITS[kind][0] in text


@pytest.mark.parametrize(
    ("kind", "changes", "badge", "reason"),
    [
        ("measured", {}, Badge("good", "good"), None),
        ("recorded", {}, Badge("good, on recorded times", "good"), None),
        ("simulated", {}, Badge("as good as the simulation can tell", "limited"), None),
        ("measured", {"covered_time": 90.0}, Badge("not good enough", "bad"), "7 of 1431 layers, 10 % of the time"),
        (
            "simulated",
            {"first": Summary(**figures_of(97.25)), "libraries": []},
            Badge("not good enough in the simulation", "bad"),
            "mean 97.2 %",
        ),
    ],
)
def test_the_verdict_has_a_word_a_colour_and_its_reasons(kind, changes, badge, reason):
    changes = {
        "first": Summary(mean=98.25, median=99.0, p10=97.0, min=60.5),
        "possible": Summary(**figures_of(99.5)),
    } | changes
    shown = evaluated(sample(kind), **changes)
    (row,) = summary.verdicts(shown)
    assert row["verdict"] == badge and bool(summary.reasons(shown)) == (badge.colour == "bad")
    assert reason is None or any(reason in text for text in summary.reasons(shown))
    (row,) = as_rows(summary.figures(shown)[0])
    assert (row["layers"], row["more layers without a candidate"]) == (1424, 7)


def test_the_headline_counts_what_is_not_good_enough():
    shown = sample("measured")
    assert summary.headline(shown) == "All 3 operations are good enough"
    *good, last = shown.operations
    last = dataclasses.replace(
        last, evaluation=last.evaluation.model_copy(update={"covered_time": 90.0, "libraries": []})
    )
    bad = dataclasses.replace(shown, operations=(*good, last))
    assert summary.headline(bad) == "1 of 3 operations is not good enough"
    assert [reason.partition(":")[0] for reason in summary.reasons(bad)] == ["bwd_weight_bf16"]


def test_the_verdicts_have_the_speed_beside_what_runs_today(shown):
    rows = summary.verdicts(shown)
    assert [row["speed against cuDNN"] for row in rows] == ["1.062"] * 3
    assert rows[0]["worst network"] == f"{HOSTILE} 91.8 %"
    (alone,) = summary.verdicts(evaluated(shown, libraries=[], networks=[]))
    assert alone["speed against best fixed choice"] == "1.590" and "worst layer 67.5 %" in alone["worst network"]
    assert [row[0] for row in losses.networks(shown)[0].rows] == [HOSTILE] * 3


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
    panels = [panel for section in page.APPENDIX for draw in section.draw for panel in draw(shown)]
    drawn = sorted(json.dumps(panel.spec, sort_keys=True) for panel in panels)
    assert sorted(json.dumps(json.loads(text), sort_keys=True) for text in specs) == drawn


def test_the_same_results_give_the_same_bytes(html):
    assert page.render_page(sample(), TEMPLATE, CALL) == html


def test_the_files_of_all_operations_are_read_in_any_order(tmp_path):
    inputs = written(tmp_path)
    shown = read(inputs)
    assert [one.evaluation.operation for one in shown.operations] == list(OPERATIONS[:2])
    back = {field.name: getattr(inputs, field.name)[::-1] for field in dataclasses.fields(inputs)}
    again = read(results.Inputs(**back))
    assert [one.evaluation for one in again.operations] == [one.evaluation for one in shown.operations]
    assert [one.label for one in again.operations] == [one.label for one in shown.operations]


def test_a_field_that_is_missing_or_wrong_is_named(tmp_path):
    inputs = written(tmp_path)
    sound = json.loads(inputs.evaluation[0].read_text())
    for field, value in (("top1", None), ("device_kind", "guessed"), ("baselines", {"x": {"meaning": 1}})):
        inputs.evaluation[0].write_text(json.dumps(sound | {field: value}))
        with pytest.raises(UserError, match=rf"forward_bf16\.json: {field}"):
            read(inputs)


def test_another_device_is_refused(tmp_path):
    inputs = written(tmp_path)
    for path in (inputs.evaluation[1], inputs.training[1] / model_files.MANIFEST):
        sound = path.read_text()
        path.write_text(json.dumps(json.loads(sound) | {"device": "other"}))
        with pytest.raises(UserError, match="device is 'other'"):
            read(inputs)
        path.write_text(sound)


def test_every_operation_needs_its_files(tmp_path):
    inputs = written(tmp_path)
    for kind in ("training", "dataset", "kernels", "evaluation"):
        for paths in (getattr(inputs, kind)[:1], [*getattr(inputs, kind), getattr(inputs, kind)[0]]):
            with pytest.raises(UserError, match="give one for each operation of the evaluations"):
                read(dataclasses.replace(inputs, **{kind: paths}))


def test_the_times_of_cudnn_are_those_of_the_operation(tmp_path):
    table = tmp_path / "recorded/forward_bf16/cudnn.csv"
    table.parent.mkdir(parents=True)
    inputs = dataclasses.replace(written(tmp_path), cudnn=[table])
    table.write_text("problem_key,samples,median_us\nabc,15,21.25\ndef,0,\n")
    assert [one.library_us.to_dict() for one in read(inputs).operations] == [{"abc": 21.25}, {}]
    table.write_text("problem_key,samples\nabc,15\n")
    with pytest.raises(UserError, match="median_us"):
        read(inputs)


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing }}"])
def test_a_broken_template_is_named(shown, tmp_path, text):
    template = tmp_path / "broken.j2"
    template.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(template))):
        page.render_page(shown, template, CALL)
    with pytest.raises(UserError, match="there has to be a template"):
        page.render_page(shown, tmp_path / "none.j2", CALL)


def test_the_script_writes_the_page(tmp_path, capsys):
    script, inputs = main_of("report"), written(tmp_path)
    fields = [field.name for field in dataclasses.fields(inputs)]
    words = [word for name in fields for word in (f"--{name}", *map(str, getattr(inputs, name)))]
    words += ["--call", CALL]
    output = tmp_path / "reports" / "gfx950.html"
    words += ["--template", str(TEMPLATE), "--page", str(output), "--workflow", str(tmp_path)]
    assert script(words) == 0
    written_page = output.read_text(encoding="utf-8")
    assert "Made by\nno commit" in written_page and "simulated" in capsys.readouterr().out
    assert script([*words, "--settings", '{"arch": "gfx950"}']) == 0
    assert output.read_text(encoding="utf-8") != written_page
    inputs.evaluation[0].write_text("{")
    assert script(words) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_the_picks_are_beside_their_bounds_and_the_choices_without_a_model(shown):
    rows = {row["way to choose"]: row for row in as_rows(tables.choosers(shown)[0])}
    assert list(rows) == [
        "pick", "perfect selector", "fastest of 2", "fastest of 3", "best single kernel",
        "random supported", "hand rule",
    ]  # fmt: skip
    assert rows["pick"]["95 % interval of the mean"] == "97.1 to 99.4"
    assert rows["best single kernel"]["meaning"] == "one for all" and rows["pick"]["mean, %"] == 98.25


def test_the_reality_check_is_on_the_first_screen(shown, html):
    assert tables.reality(shown) == [] and "Reality check" not in html
    check = RealityCheck(
        meaning="picks", recording=Origin(**origin("forward_bf16", "recorded")), source=f"somebody {HOSTILE}",
        n_problems=185, candidates=13, efficiency=Summary(**figures_of(95.25)),
        interval={"mean": [94.25, 96.25]}, by_chance=Summary(**figures_of(72.5)),
    )  # fmt: skip
    changed = first(shown, manifest=shown.operations[0].manifest.model_copy(update={"reality_check": [check]}))
    (row,) = as_rows(tables.reality(changed)[0])
    assert row["data"] == "gfx950: 185 layers, 13 candidates" and row["a random candidate, mean, %"] == 72.5
    assert row["mean, %"] == 95.25 and row["95 % interval"] == "94.2 to 96.2"
    text = page.render_page(changed, TEMPLATE, CALL)
    assert "Reality check" in text.split("</section>")[0] and "somebody &lt;script" in text


def test_the_kernels_to_ship_have_their_loss_price_and_names(shown, html):
    (row, *_) = as_rows(kernels.ship(shown)[0])
    names = shown.operations[0].kernels.pruned
    assert row["kernels"].startswith("2 of ") and row["loss on unseen layers, %"] == "1.50"
    assert row["loss, %"] == "0.75" and row["P10 loss on unseen layers, %"] == "12.75"
    assert row["names"] == Copied("\n".join(names), "Copy 2 names")
    assert f'data-text="{names[0]}\n{names[1]}"' in html
    one = shown.operations[0]
    others = one.measured.candidates.assign(
        aliases=["one two" if name == names[0] else "" for name in one.measured.candidates["kernel"]], code_bytes=5e6
    )
    compiled = first(shown, measured=dataclasses.replace(one.measured, candidates=others))
    listed = as_rows(kernels.shipped(compiled)[0])
    assert [(row["name"].text, row["other names"]) for row in listed] == [(names[0], "one, two"), (names[1], "")]


def test_the_best_of_each_shape_is_the_fastest_that_ran_with_the_pick_and_the_library_beside_it(shown):
    found = learning_samples.measured("forward")
    rows = [row for row in as_rows(kernels.best(shown)[0]) if row["operation"] == "forward_bf16"]
    ran = found.status == 0
    fastest = [
        found.tflops[(found.problem == number) & ran].max()
        for number in found.problems.index[found.problems["split"] == "validation"]
        if ((found.problem == number) & ran).any()
    ]
    assert sorted(row["TFLOPS"] for row in rows) == sorted(fastest) and fastest
    labels = measured.labels(found.candidates)
    for row in rows:
        same = [all(getattr(label, part) == row[part] for part in measured.LABEL) for label in labels.itertuples()]
        at = (found.tflops == row["TFLOPS"]) & np.array(same)[found.candidate]
        assert found.latency_ms[at] * 1e3 == pytest.approx([row["µs"]])
        assert row["of the roofline, %"] > 0
    assert [row for row in rows if row["pick"] == "the best" and row["pick, %"] == 100.0]
    (other,) = [row for row in rows if row["pick, %"] == 81.25]
    label = measured.records(shown.operations[0].measured.candidates)[1]
    assert other["cuDNN, µs"] == 123.5 and other["pick"] == measured.short(label)
    assert any(row["pick"] == "" and row["cuDNN, µs"] == "" for row in rows)


def test_of_many_layers_those_with_the_worst_picks_are_listed(shown, monkeypatch):
    monkeypatch.setattr(kernels, "MOST_LAYERS", 1)
    (table,) = kernels.best(shown)
    (row,) = [row for row in as_rows(table) if row["operation"] == "forward_bf16"]
    assert row["pick, %"] == 81.25 and "with the worst picks, 1 of an operation" in table.caption


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
    winners = as_rows(kernels.wins(changed)[0])
    assert {row["layers won, %"] for row in winners} == {50.0}
    assert {row["pipeline"] for row in winners} == {one["pipeline"].iloc[0], "zzz"}


def test_the_advice_follows_from_the_figures(shown):
    assert losses.advice(shown.operations[0])["add kernels (configs.rule_set)"] == "7 layers have no candidate"
    quiet = evaluated(shown, without_candidate=0, by_kind={}, by_evidence={}, first=Summary(**figures_of(98.5)))
    assert losses.improvements(quiet) == []
    timed = evaluated(shown, best_of_2=Summary(**figures_of(99.0)))
    assert "mean 99.0 %" in losses.advice(timed.operations[0])["time two picks once (tileseer tune)"]
    rows = [(row[0], row[2]) for row in losses.kinds(shown)[0].rows]
    assert rows == [("3x3", 6.0), ("evidence: inside", 5.0), ("evidence: outside", 35.0)]


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
    (row,) = as_rows(kernels.health(first(shown, measured=unknown))[0])
    assert row[error] == row[drifted] == "unknown"
    assert as_rows(kernels.health(shown)[0])[0][error] == "1.25"
    status = np.where(sample.status == STATUSES.index("crash"), STATUSES.index("skipped"), sample.status)
    fine = measured.measured_of(dataclasses.replace(sample, status=status), product)
    assert as_rows(kernels.health(first(shown, measured=fine))[0])[0]["failed"] == "none"
    status[ok[:3]] = [STATUSES.index(name) for name in ("crash", "crash", "wrong_result")]
    failing = measured.measured_of(dataclasses.replace(sample, status=status), product)
    assert as_rows(kernels.health(first(shown, measured=failing))[0])[0]["failed"] == "crash 2, wrong result 1"


def test_the_roof_is_the_product_s(shown):
    product = learning_samples.product()
    panel = figures.roofline(shown)[0]
    assert f"roofline is {product.peak_tflops('bf16'):,.0f} TFLOPS and {product.hbm_tb_per_s:g} TB/s" in panel.words
