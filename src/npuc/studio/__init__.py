"""npuc studio: a network, its error, its time and its memory on one page, served to this machine only.

    project     the files of a folder, by what they contain; nothing outside of it is ever opened
    graphs      a model of any form as nodes, edges and scopes
    numbers     two forms on one sample: every layer's error, and one tensor in both
    images      one image through several models: what they are given, classes and boxes
    timing      the time of a compiled model, as `npuc profile` tells it
    instructions of a program one by one: lines, cycles, waits, operands
    ranges      calibration ranges over histograms, edited as tables
    schedules   groups and tiles, edited as schedule files
    frontier    programs as points: decibels over cycles
    jobs        `npuc` commands that the page starts: progress, cancel, what they wrote
    guard       who may ask: a token that becomes a cookie, checked Host and Origin, a content security policy
    server      the addresses, and what answers at each
    page        the page itself, served or as one file

The server answers with plain data that commands of npuc also print (`--json`); what the page changes, it saves as the files
that those commands take. So whatever is done here can be done, and repeated, without it.
"""
