"""Other people's runtimes as judges: LiteRT, TensorFlow, Keras, torch."""
