"""How networks run on the BM1684X: ops as commands, cut to fit its local memory, with addresses and an order.

The chip's local memory is 64 lanes, and channel c of a tensor lies in lane c mod 64: nothing of the dense rows of pixels that
`npuc.schedule` plans for other machines. So this is a scheduler of its own, for a machine that has its own layouts, on the same
networks and partitions; `schedule` is the way in.
"""
