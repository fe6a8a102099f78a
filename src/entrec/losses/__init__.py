"""Objectives as modules: projections in, a scalar to minimise out.

Projections come as the head gives them: a loss on the sphere normalises them itself. No loss ever holds the matrix of all
pairs of a large batch, forwards or backwards (see `entrec.pairwise_logsumexp`).

Several processes have two ways, and both are exact:

- `gather_distributed=True`: the loss of the concatenated batch of all ranks. Every rank returns that value, and its gradient is
  the number of ranks times its own rows' share, so that the mean over ranks that DistributedDataParallel takes is the
  gradient that one process would find on the whole batch. Ranks may hold different numbers of rows: each row counts the
  same. The encoder must act on each sample alone for the equality to hold; BatchNorm does not, so convert it
  (`torch.nn.SyncBatchNorm.convert_sync_batchnorm`). All ranks of the default group must call it, with the same settings. A
  call that gathers waits for the other ranks, and for the device once, and torch.compile breaks its graph there.
- `gather_distributed=False`: each rank takes the loss of its own rows, and DistributedDataParallel's mean makes that the
  average of one estimate per replica, the paper's other choice (with its larger bias at small batches).
"""

from entrec.losses.align_uniform import AlignUniformLoss
from entrec.losses.byol import BYOLLoss
from entrec.losses.deep_cluster import DeepClusterLoss
from entrec.losses.dino import DINOLoss
from entrec.losses.discrete_er import DiscreteERLoss
from entrec.losses.er import ERLoss
from entrec.losses.info_nce import InfoNCELoss
from entrec.losses.memory_bank import MemoryBankLoss
from entrec.losses.nt_xent import NTXentLoss
from entrec.losses.swav import SwAVLoss

__all__ = [
    "AlignUniformLoss",
    "BYOLLoss",
    "DINOLoss",
    "DeepClusterLoss",
    "DiscreteERLoss",
    "ERLoss",
    "InfoNCELoss",
    "MemoryBankLoss",
    "NTXentLoss",
    "SwAVLoss",
]
