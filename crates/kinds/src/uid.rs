//! Uids as objects carry them: a subject's number in the usual form, 8-4-4-4-12.

use ledger::SubjectId;
use uuid::Uuid;

pub fn text(subject: SubjectId) -> String {
    Uuid::from_u128(subject.0).hyphenated().to_string()
}

pub fn parse(text: &str) -> Option<SubjectId> {
    Uuid::try_parse(text).ok().map(|uid| SubjectId(uid.as_u128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_read_as_it_is_written() {
        assert_eq!(text(SubjectId(0x1f)), "00000000-0000-0000-0000-00000000001f");
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            assert_eq!(parse(&text(SubjectId(number))), Some(SubjectId(number)));
        }
        assert_eq!(parse("somebody"), None);
    }
}
