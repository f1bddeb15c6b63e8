/* The example elevator in Promela: one statement for each transition. */
byte call[3]; byte floor, doors_open;
active proctype People() {
act: if
:: d_step { call[0] == 0; call[0] = 1 }
:: d_step { call[1] == 0; call[1] = 1 }
:: d_step { call[2] == 0; call[2] = 1 }
fi; goto act
}
active proctype Cabin() { byte up;
decide: if
:: d_step { call[floor] -> doors_open = 1; call[floor] = 0 } goto open
:: (!call[floor] && (call[0] || call[1] || call[2])) -> goto move
fi;
open: if
:: d_step { !(call[(floor + 1) % 3] || call[(floor + 2) % 3]) -> doors_open = 0 } goto decide
:: d_step { (call[(floor + 1) % 3] || call[(floor + 2) % 3]) -> doors_open = 0 } goto move
fi;
move: if
:: d_step { up && floor < 2 -> floor = floor + 1 } goto decide
:: d_step { !up && floor > 0 -> floor = floor - 1 } goto decide
:: d_step { up && floor == 2 -> up = 0 } goto move
:: d_step { !up && floor == 0 -> up = 1 } goto move
fi
}
