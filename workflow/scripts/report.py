from __future__ import annotations

from tileseer.core.script import Folder, Input, Output, Settings, stage_script


@stage_script()
def main(
    validation: list[Input], training: list[Input], template: Input, page: Output, dataset: list[Input] = (),
    kernels: list[Input] = (), recording: Folder | None = None, tables: list[Input] = (), arch: str = "",
    settings: Settings = "{}",
) -> str:  # fmt: skip
    """Show what training and validation of one arch gave, as one HTML page that needs no network.

    validation: reports of the validation stage, any order
    training: folders of the model stage, any order
    template: Jinja2 template of the page; its script lies beside
    dataset: datasets, for what they show; any order
    kernels: kernel lists of the serving stage, any order
    recording: folder of the recording that was replayed, for cuDNN's times
    tables: files of that recording which the page shows
    """
    from tileseer.core.atomic import write_text
    from tileseer.report import page as pages
    from tileseer.report import results

    shown = results.read_results(validation, training, dataset, recording, kernels)
    write_text(page, pages.render_page(shown, template))
    return f"{page} shows {len(shown.operations)} operations ({shown.device_kind})"
