"""What is measured of a run when an epoch is over: a kNN score, where there are labels, and a look through the lens."""

from entrec.evaluation.features import labelled
from entrec.evaluation.knn import knn_accuracy
from entrec.lens.verdict import FAILURES
from entrec.training.images import KNN_IMAGES, single, some
from entrec.training.log import Log, in_words
from entrec.training.loop import Loop


def epoch_row(loop: Loop, log: Log, epoch: int) -> None:
    """Write the row of an epoch, and say what is in it."""
    row: dict[str, float] = {"step": loop.place.step, "epoch": epoch}
    try:
        top1 = knn(loop)
    except ValueError as error:  # for instance no held-out image can be read: no reason to lose the epoch
        log.say(f"warning: no kNN score: {error}")
        top1 = None
    row |= {} if top1 is None else {"knn_top1": top1}
    if loop.settings.lens:
        row |= _looked(loop, log)
    if len(row) > 2:
        log.row(row, loop.settings.epochs)
    recent = [x for x in loop.run.metrics if x["epoch"] == epoch]
    latest = {key: value for x in recent for key, value in x.items()}
    log.say(f"epoch {epoch + 1:>3}  {in_words(latest)}")


def knn(loop: Loop) -> float | None:
    """Online kNN accuracy on the test split, or on a part of a large one, where there are labels."""
    source, classes, settings = loop.parts.source, len(loop.parts.source.classes), loop.settings
    if not classes or source.test is None:
        return None
    splits = [single(part) for part in (source.train, source.test)]
    looked_at = splits if settings.knn_all else [some(part, KNN_IMAGES) for part in splits]
    bank, judged = (loop.extract(loop.parts.backbone.module, part) for part in looked_at)
    if not (bool((bank.labels >= 0).any()) and bool((judged.labels >= 0).any())):
        return None
    k, temperature = settings.knn_k, settings.knn_temperature
    return knn_accuracy(labelled(bank), labelled(judged), k=k, temperature=temperature, classes=classes)


def _looked(loop: Loop, log: Log) -> dict[str, float]:
    """The numbers of a look through the lens, whose verdict is said when it is another than before."""
    before = loop.looks.noted[-1][1] if loop.looks.noted else "healthy"
    try:
        found = loop.looks.take(loop.place.epoch)
    except ValueError as error:  # as for the kNN score
        log.say(f"warning: the lens saw nothing: {error}")
        return {}
    if found.verdict.name != before:
        log.say(f"lens: {found.verdict.title}")
        for text in (*found.verdict.because, *found.verdict.remedies) if found.verdict.name in FAILURES else ():
            log.say(f"      {text}")
    return found.row()
