"""What a trained encoder is worth: its features, judged with labels it has not seen, and written for others to load."""

from entrec.evaluation.export import Exported, export_encoder
from entrec.evaluation.features import Features, evaluating, extract, labelled
from entrec.evaluation.few_labels import Scores, few_labels
from entrec.evaluation.knn import knn_accuracy, knn_protocol
from entrec.evaluation.linear import Probe, linear_probe
from entrec.evaluation.writing import write_features

__all__ = [
    "Exported",
    "Features",
    "Probe",
    "Scores",
    "evaluating",
    "export_encoder",
    "extract",
    "few_labels",
    "knn_accuracy",
    "knn_protocol",
    "labelled",
    "linear_probe",
    "write_features",
]
