/* The example token-ring in Promela: one statement for each transition. */
byte token, inside;
active [3] proctype Node() {
outside: if :: d_step { token == _pid -> inside = inside + 1 } fi;
critical: if :: d_step { inside = inside - 1; token = (_pid + 1) % 3 } fi; goto outside
}
