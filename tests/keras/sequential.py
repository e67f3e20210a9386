"""A compiled model that Keras 3 and tf-keras make alike."""


def make_sequential(library):
    """A classifier of four numbers, with batch normalization, a regularizer and two metrics."""
    layers = [
        library.layers.InputLayer([4]),
        library.layers.Dense(6, activation="relu", name="first"),
        library.layers.BatchNormalization(name="norm"),
        library.layers.Dense(1, activation="sigmoid", kernel_regularizer="l2", name="last"),
    ]
    model = library.Sequential(layers, name="line")
    metrics = ["accuracy", library.metrics.AUC(name="auc")]
    optimizer = library.optimizers.SGD(0.1, momentum=0.9, name="sgd")
    model.compile(optimizer, "binary_crossentropy", metrics=metrics)
    return model
