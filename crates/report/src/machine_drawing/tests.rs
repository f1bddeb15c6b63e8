use results::{Cache, Core, MemoryNode, Nic};

use super::*;

fn two_nodes() -> Machine {
    let core = |number: u32| Core {
        core: number,
        package: Some(number % 2),
        physical_core: Some(number / 2 % 2),
        node: Some(number % 2),
        is_online: number != 7,
        is_usable: number != 7 && number != 6,
        ..Core::default()
    };
    let node = |number: u32| MemoryNode {
        node: number,
        cores: (0..8).filter(|core| core % 2 == number).collect(),
        memory_bytes: Some(8 << 30),
        distances: if number == 0 { vec![10, 21] } else { vec![21, 10] },
    };
    Machine {
        cores: (0..8).map(core).collect(),
        caches: vec![Cache {
            level: 3,
            kind: "Unified".into(),
            size_bytes: Some(16 << 20),
            cores: vec![0, 2, 4, 6],
        }],
        nodes: vec![node(0), node(1)],
        nics: vec![Nic { name: "eth<0>\u{1b}[31m".into(), node: Some(1), ..Nic::default() }],
        ..Machine::default()
    }
}

#[test]
fn lists_are_those_of_the_kernel() {
    assert_eq!(list(&[3, 0, 1, 2, 8, 10, 11]), "0-3,8,10,11");
    assert_eq!(list(&[]), "");
    assert_eq!(list(&[u32::MAX]), u32::MAX.to_string());
}

#[test]
fn the_text_fits_and_shows_siblings_distances_and_marks() {
    let text = machine_text(&two_nodes(), &[], 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in ["[0 4]", "[2 (6)]", "-7", "L3 16.0 MiB", "node 1  8.00 GiB  <== eth", "  21   10"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "a device's name may not steer the terminal");
}

#[test]
fn the_svg_is_escaped_titled_and_described() {
    let svg = machine_svg(&two_nodes(), &[]);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(svg.contains("<title id=\"machine-title\">") && svg.contains("<desc id="));
    assert!(svg.contains("eth&lt;0&gt;") && !svg.contains("eth<0>"));
    assert!(svg.contains("prefers-color-scheme: dark"));
}

#[test]
fn an_empty_machine_is_drawn() {
    assert!(machine_text(&Machine::default(), &[], 0).contains("0 cores"));
    assert!(machine_svg(&Machine::default(), &[]).ends_with("</svg>"));
}
