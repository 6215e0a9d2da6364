"""What Keras and TensorFlow share: the layers that both are made of, built with `ChannelsLastBuilder`, one module a family."""
