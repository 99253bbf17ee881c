"""`longtail`, on a machine whose rank 1 has memory for ROOM images at a time, for the tests of scale-out.

    ROOM=20 torchrun ... tests/support/short_of_memory.py train ...

Memory runs out in the last stage of a ResNet-8, where the statistics of other layers have been summed over the ranks
and those of this one have not: the other ranks wait for them.
"""

import os
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from longtail.cli import main
from longtail.nn import CompoundBatchNorm


def run_out(module: torch.nn.Module, inputs: Any) -> None:
    here = isinstance(module, CompoundBatchNorm) and module.num_features == 64
    if here and module.training and os.environ["RANK"] == "1" and len(inputs[0]) > int(os.environ["ROOM"]):
        raise torch.OutOfMemoryError("simulated")


if __name__ == "__main__":
    register_module_forward_pre_hook(run_out)
    main()
