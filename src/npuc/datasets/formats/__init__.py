"""The data sets of npuc itself; importing them registers them."""

from importlib import import_module

for _name in ("boxes", "voc", "masks", "cifar", "labelled", "arrays"):
    # In the order of recognition: a folder of images and labels may look like folders of classes too.
    import_module(f"{__name__}.{_name}")
