"""From a partition and its schedules to a program: instruction streams, weights, CPU subgraphs, notes for tools."""
