use super::*;

/// Hears all of it, in pieces of so many bytes.
fn heard(command: &mut Command, bytes: &[u8], piece: usize) -> (Heard, Vec<u8>) {
    let mut out = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        match command.hear(piece, &mut out) {
            Heard::More => {}
            other => return (other, out),
        }
    }
    (Heard::More, out)
}

fn command() -> Command {
    Command::new(0xabc, &["echo", "hello"])
}

const BEGIN: &str = "@@B-0000000000000abc@@\n";
const END: &str = "@@E-0000000000000abc=0@@\n";
/// What the guest's own shell says then.
const FORGOTTEN: &str = "@@RC=0@@\n";

#[test]
fn what_a_command_says_is_between_its_marks_however_it_arrives() {
    let said = format!("old rest\n@@RC=1@@\n{BEGIN}hello\nno line's end{END}@@RC=0@@\n");
    for piece in 1..said.len() {
        let (end, out) = heard(&mut command(), said.as_bytes(), piece);
        assert_eq!(end, Heard::Ended(0), "pieces of {piece}");
        assert_eq!(out, b"hello\nno line's end", "pieces of {piece}");
    }
}

#[test]
fn a_command_has_ended_once_the_guest_has_forgotten_it() {
    for piece in [1, 4, 1000] {
        let mut one = command();
        let said = format!("{BEGIN}hello\n{END}of a job in the background\n");
        assert_eq!(heard(&mut one, said.as_bytes(), piece), (Heard::More, b"hello\n".to_vec()));
        assert_eq!(heard(&mut one, &[b'x'; 5000], piece), (Heard::More, Vec::new()));
        let (end, out) = heard(&mut one, FORGOTTEN.as_bytes(), piece);
        assert_eq!((end, out), (Heard::Ended(0), Vec::new()), "pieces of {piece}");
    }
    // What ends in a reboot is told by its own status.
    let said = format!("{BEGIN}{END}{READY}\n");
    assert_eq!(heard(&mut command(), said.as_bytes(), 3).0, Heard::Ended(0));
}

#[test]
fn output_that_resembles_marks_is_output() {
    let other = "@@E-0000000000000abd=7@@\n@@READY@@ @@RC=3@@ @@E- @@B-0000000000000abc@@\n@@";
    let said = format!("{BEGIN}{other}@@E-0000000000000abc=42@@\n@@RC=42@@\n");
    for piece in [1, 2, 3, 7, 1000] {
        let (end, out) = heard(&mut command(), said.as_bytes(), piece);
        assert_eq!((end, out), (Heard::Ended(42), other.as_bytes().to_vec()), "{piece}");
    }
}

#[test]
fn output_comes_at_once_to_its_last_byte() {
    let mut one = command();
    let mut out = Vec::new();
    for (said, given) in [(BEGIN, ""), ("a line\n", "a line\n"), ("a prompt> ", "a prompt> ")] {
        assert_eq!(one.hear(said.as_bytes(), &mut out), Heard::More);
        assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), given);
    }
}

#[test]
fn a_guest_that_boots_has_lost_the_command() {
    let mut one = command();
    assert_eq!(heard(&mut one, b"noise @@READY@@\n", 4).0, Heard::Rebooted);
    assert!(!one.has_begun());
    for piece in [1, 5, 1000] {
        let said = format!("{BEGIN}some output\n@@READY@@\n");
        let (end, out) = heard(&mut command(), said.as_bytes(), piece);
        assert_eq!(end, Heard::Rebooted);
        assert_eq!(out, b"some output\n", "pieces of {piece}");
    }
}

#[test]
fn a_greeting_is_answered_by_its_own_token_only() {
    let said = b"boot noise @@SYNC-0000000000000007@@ @@HERE-0000000000000008@@\n";
    let answer = b"@@RC=1@@\n@@HERE-0000000000000007@@";
    for piece in [1, 9, 1000] {
        let mut greeting = Greeting::new(7);
        assert_eq!(greeting.line(), b"@@SYNC-0000000000000007@@\n");
        // An echo of the question is no answer.
        let mut hear = |bytes: &[u8]| bytes.chunks(piece).any(|piece| greeting.hear(piece));
        assert!(!hear(said) && !hear(&[b'x'; 5000]), "pieces of {piece}");
        assert!(hear(answer), "pieces of {piece}");
    }
}

#[test]
fn the_line_itself_has_no_mark_in_it() {
    let one = command();
    let (end, out) = heard(&mut command(), one.line(), 3);
    assert_eq!((end, out), (Heard::More, Vec::new()), "an echo of the line is not its answer");
    assert_eq!(one.line().iter().filter(|&&byte| byte == b'\n').count(), 1);
}

#[test]
fn words_reach_a_shell_as_they_are() {
    let words: [&[u8]; 6] =
        [b"plain-1.2", b"", b"a b", b"it's \\ $HOME `x`", b"one\ntwo\t", b"\xc3\xa4"];
    let text: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    assert!(text.iter().all(|word| !word.contains('\n')));
    let script = format!("for word in {}; do printf '%s|' \"$word\"; done", text.join(" "));
    let output =
        std::process::Command::new("busybox").args(["sh", "-c", &script]).output().unwrap();
    let read: Vec<&[u8]> = output.stdout.split(|&byte| byte == b'|').collect();
    assert_eq!(read[..words.len()], words, "{script}");
}

#[test]
fn anything_may_come_over_the_line() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, piece)| {
        let mut said = BEGIN.as_bytes().to_vec();
        said.extend(bytes);
        said.extend(END.as_bytes());
        said.extend(FORGOTTEN.as_bytes());
        for said in [bytes, &said] {
            let whole = heard(&mut command(), said, usize::MAX);
            let pieces = heard(&mut command(), said, usize::from(*piece));
            assert_eq!(whole.0, pieces.0);
            if whole.0 != Heard::More {
                assert_eq!(whole.1, pieces.1);
            }
        }
    });
}
