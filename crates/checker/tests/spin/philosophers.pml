/* The example philosophers in Promela: one statement for each transition. */
byte fork[3];
active [3] proctype Phil() {
think: if :: d_step { fork[_pid] == 0; fork[_pid] = 1 } fi;
one: if :: d_step { fork[(_pid + 1) % 3] == 0; fork[(_pid + 1) % 3] = 1 } fi;
eat: fork[_pid] = 0;
done: fork[(_pid + 1) % 3] = 0; goto think
}
