"""Time per training step of models for a GPU: ResNet-50 on 224x224 pixels, and BERT-base."""

from benchmarks.examples import measure
from benchmarks.processes import answer

if __name__ == "__main__":
    answer(measure)
