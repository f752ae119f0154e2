//! From a judged target to a connection: resolved once, every address classified,
//! and what was classified dialled.
