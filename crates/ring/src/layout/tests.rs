use super::*;

const SMALL: Geometry =
    Geometry { tx_rings: 2, rx_rings: 1, slots: 8, buffer_bytes: 256, extra_buffers: 5 };

#[test]
fn what_is_written_is_read() {
    let region = Region::private(SMALL.region_bytes().unwrap()).unwrap();
    let written = Layout::format(&region, &SMALL).unwrap();
    assert_eq!(Layout::read(&region).unwrap(), written);
    assert_eq!(written.buffers_count(), 2 + 3 * 8 + 5);
    assert_eq!(written.first_extra_buffer(), 26);
    assert_eq!(written.rings()[2].direction, Direction::Receive);
    let mut seen = std::collections::BTreeSet::new();
    for ring in 0..3 {
        let memory = written.memory(&region, ring).unwrap();
        seen.extend((0..8).map(|index| memory.slot(index).buffer));
    }
    assert_eq!(seen, (2..26).collect(), "each slot begins with a buffer of its own");
}

#[test]
fn a_netmap_program_finds_its_buffers() {
    let region = Region::private(SMALL.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &SMALL).unwrap();
    let place = layout.rings()[2];
    let words = region.view::<AtomicU32>(place.offset as usize, 5).unwrap();
    let word = |index: usize| words[index].load(Ordering::Relaxed);
    assert_eq!(place.offset + word(0), layout.buffers_offset, "buf_ofs");
    assert_eq!((word(2), word(3)), (8, 256), "num_slots, nr_buf_size");
    assert_eq!(word(4), 2 | 1 << 16, "ringid and dir");
}

#[test]
fn geometries_have_limits() {
    let refused = |geometry: Geometry| geometry.region_bytes().unwrap_err();
    for geometry in [
        Geometry { tx_rings: 0, rx_rings: 0, ..SMALL },
        Geometry { tx_rings: 64, ..SMALL },
        Geometry { tx_rings: u32::MAX, ..SMALL },
        Geometry { slots: 1, ..SMALL },
        Geometry { slots: 4097, ..SMALL },
        Geometry { buffer_bytes: 0, ..SMALL },
        Geometry { buffer_bytes: 100, ..SMALL },
        Geometry { buffer_bytes: 65_600, ..SMALL },
        Geometry { extra_buffers: u32::MAX, ..SMALL },
    ] {
        assert!(matches!(refused(geometry), LayoutError::Range { .. }), "{geometry:?}");
    }
    let region = Region::private(8192).unwrap();
    assert!(matches!(Layout::format(&region, &SMALL), Err(LayoutError::Outside(_))));
    assert!(matches!(Layout::read(&region), Err(LayoutError::Foreign { magic: 0, .. })));
}

/// Whatever somebody scribbles over a header: it is refused, or all that it names lies inside.
#[test]
#[cfg(not(miri))]
fn hostile_headers_are_refused_or_harmless() {
    let bytes = SMALL.region_bytes().unwrap();
    let region = Region::private(bytes).unwrap();
    bolero::check!().with_type::<Vec<(u8, u32)>>().for_each(|scribbles| {
        Layout::format(&region, &SMALL).unwrap();
        let words = region.view::<AtomicU32>(0, 256).unwrap();
        for &(index, value) in scribbles {
            words[3 + usize::from(index) % 20].store(value, Ordering::Relaxed);
        }
        let Ok(layout) = Layout::read(&region) else { return };
        for ring in 0..u32::try_from(layout.rings().len()).unwrap() {
            for seat in [Seat::User, Seat::TxOwner, Seat::RxOwner] {
                if let Ok(end) = layout.end(&region, ring, seat, 0) {
                    let last = end.memory().slot(end.slots() - 1);
                    assert_eq!(Slot::from_word(last.to_word()), last);
                }
            }
        }
        let buffers = layout.buffers(&region).unwrap();
        assert!(buffers.get(buffers.count() - 1).unwrap().write(0, &[0]));
    });
}
