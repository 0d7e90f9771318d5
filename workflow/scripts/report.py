from tileseer.core.script import Input, Output, stage_script


@stage_script()
def main(
    validation: list[Input], training: list[Input], template: Input, page: Output, dataset: list[Input] = (),
    kernels: list[Input] = (), evaluation: list[Input] = (), tables: list[Input] = (),
) -> str:  # fmt: skip
    """Show what training and validation of one arch gave, as one HTML page that needs no network.

    validation: reports of the validation stage, any order
    training: folders of the model stage, any order
    template: Jinja2 template of the page; its script lies beside
    dataset: datasets, for what they show; any order
    kernels: kernel lists of the serving stage, any order
    evaluation: how good the picks are that ship, of the serving stage, any order
    tables: files of the recording that was replayed, recording.json first: its making and cuDNN's times
    """
    from tileseer.core.atomic import write_text
    from tileseer.report import page as pages
    from tileseer.report import results

    recording = tables[0].parent if tables else None
    shown = results.read_results(validation, training, dataset, recording, kernels, evaluation)
    write_text(page, pages.render_page(shown, template))
    return f"{page} shows {len(shown.operations)} operations ({shown.device_kind})"
