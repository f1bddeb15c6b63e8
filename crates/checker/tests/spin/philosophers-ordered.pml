/* The example philosophers-ordered in Promela: one statement for each transition. */
byte fork[3];
#define CYCLE(first, second) \
think: if :: d_step { fork[first] == 0; fork[first] = 1 } fi; \
one: if :: d_step { fork[second] == 0; fork[second] = 1 } fi; \
eat: fork[first] = 0; \
done: fork[second] = 0; goto think
active proctype P0() { CYCLE(0, 1) }
active proctype P1() { CYCLE(1, 2) }
active proctype P2() {
think: if :: d_step { fork[0] == 0; fork[0] = 1 } fi;
one: if :: d_step { fork[2] == 0; fork[2] = 1 } fi;
eat: fork[2] = 0;
done: fork[0] = 0; goto think
}
