"""The commands and packages of other vendors' toolchains, on npuc: thin adapters under the names that their documents print.

    registry     which vendors there are; the package of each states its commands and modules as plain data (`VENDOR`)
    install      scripts and importable packages in a folder of the user's choice
    running      one command of a vendor, with errors under the vendor's identifiers
    arguments    command lines as the vendors' tools read them: what is unknown, what means nothing here, what is refused
    names        names of tensors in a vendor's spelling, both ways, stored with the model

An adapter parses, translates names and files, calls public functions of npuc, and writes the files that the vendor's tool would
have left behind. No algorithm lives here.
"""
