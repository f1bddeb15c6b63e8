/* The example readers-writers in Promela: one statement for each transition. */
byte readers, writing;
active [2] proctype Reader() {
idle: if :: d_step { writing == 0; readers = readers + 1 } fi;
reading: readers = readers - 1; goto idle
}
active proctype Writer() {
waiting: if :: d_step { readers == 0; writing = 1 } fi;
writes: writing = 0; goto waiting
}
