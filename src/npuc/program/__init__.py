"""The compiled artifact: the instruction set, the `.npu` file, its disassembly and relocation."""
