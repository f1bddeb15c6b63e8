//! Planning, applying, journalling and undoing changes to a host.
