"""What follows the sums of a product on the CPU, while they are in registers or in L1."""
