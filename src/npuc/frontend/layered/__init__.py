"""What formats made of named layers (Caffe, Darknet) share: a network as data, rules by kind of layer, and the walk."""
