# Names on the command line that no rule makes, and rules as targets that make more than one file.
def is_made(name):
    """Whether a name is a rule's, or that of a file that there is or that a rule makes."""
    path = name if os.path.isabs(name) else os.path.relpath(name)
    return (
        workflow.is_rule(name)
        or os.path.exists(path)
        or any(each.is_producer(path) for each in workflow.rules)
    )


# Where another workflow uses this one, it has rules of its own.
if workflow.is_main_process and os.path.samefile(workflow.basedir, HERE):
    NAMES = [*CALL.targets, *CALL.forcerun, *CALL.until, *CALL.omit_from]
    try:
        preflight.refuse_targets(
            SETTINGS,
            [name for name in NAMES if not is_made(name)],
            [
                each.name
                for each in workflow.rules
                if each.name in CALL.targets and each.has_wildcards()
            ],
            [each.name for each in workflow.rules],
        )
    except UserError as error:
        raise SystemExit(errors.lines_of(error)) from None
