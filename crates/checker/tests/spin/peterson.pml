/* The example peterson in Promela: one statement for each transition. */
byte flag[2]; byte turn;
active proctype P0() {
outside: flag[0] = 1;
polite: turn = 1;
waiting: (flag[1] == 0 || turn == 0);
critical: flag[0] = 0; goto outside
}
active proctype P1() {
outside: flag[1] = 1;
polite: turn = 0;
waiting: (flag[0] == 0 || turn == 1);
critical: flag[1] = 0; goto outside
}
