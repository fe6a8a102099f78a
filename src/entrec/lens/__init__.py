"""The lens: what a representation has learnt, seen without labels, and told in words.

from entrec.lens import diagnose, look
verdict = diagnose(look(z1, z2))
verdict.title, verdict.because, verdict.remedies
"""

from entrec.lens.readings import CodeReadings, Pairs, Readings, look, look_at_codes
from entrec.lens.verdict import Verdict, diagnose

__all__ = ["CodeReadings", "Pairs", "Readings", "Verdict", "diagnose", "look", "look_at_codes"]
