use super::*;

/// What was read, whole.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Head(Vec<u8>),
    Data(Vec<u8>),
    Trailers(Vec<u8>),
    Settings(Vec<u8>),
    GoAway(u64),
    Fault(Fault),
}

fn read_by(of: Of, most: usize, stream: &[u8], cut: usize) -> Vec<Said> {
    let (mut reader, mut said) = (Reader::new(of, most), Vec::new());
    for piece in stream.chunks(cut) {
        let mut at = 0;
        loop {
            let (used, event) = match reader.next(&piece[at..]) {
                Ok(found) => found,
                Err(fault) => {
                    said.push(Said::Fault(fault));
                    return said;
                }
            };
            at += used;
            match event {
                None => break,
                Some(Event::Data(data)) => match said.last_mut() {
                    Some(Said::Data(before)) => before.extend_from_slice(data),
                    _ => said.push(Said::Data(data.to_vec())),
                },
                Some(Event::Head(block)) => said.push(Said::Head(block.to_vec())),
                Some(Event::Trailers(block)) => said.push(Said::Trailers(block.to_vec())),
                Some(Event::Settings(bytes)) => said.push(Said::Settings(bytes.to_vec())),
                Some(Event::GoAway(id)) => said.push(Said::GoAway(id)),
            }
        }
        assert_eq!(at, piece.len(), "all is used before nothing is said");
    }
    if of == Of::Message {
        said.extend(reader.end().err().map(Said::Fault));
    }
    said
}

fn said(of: Of, stream: &[u8]) -> Vec<Said> {
    let whole = read_by(of, 100, stream, usize::MAX);
    for cut in 1..stream.len() {
        assert_eq!(read_by(of, 100, stream, cut), whole, "cut by {cut}");
    }
    whole
}

fn message() -> Vec<u8> {
    let mut stream = Vec::new();
    headers(b"head", &mut stream);
    data(3, &mut stream);
    stream.extend_from_slice(b"abc");
    // One that nobody knows (RFC 9114 §7.2.8), of five bytes, and an empty one of content.
    stream.extend_from_slice(&[0x21, 5, 1, 2, 3, 4, 5, 0, 0]);
    data(2, &mut stream);
    stream.extend_from_slice(b"de");
    headers(b"trailers", &mut stream);
    stream
}

#[test]
fn a_message_is_the_same_however_it_is_cut() {
    let whole =
        [Said::Head(b"head".to_vec()), Said::Data(b"abcde".to_vec()), Said::Trailers(b"trailers".to_vec())];
    assert_eq!(said(Of::Message, &message()), whole);
}

#[test]
fn frames_where_they_may_not_be() {
    for (stream, fault) in [
        (&[0, 0][..], Fault::FrameUnexpected),
        (&[1, 0, 1, 0, 0, 0], Fault::FrameUnexpected),
        (&[1, 0, 1, 0, 1, 0], Fault::FrameUnexpected),
        (&[4, 0], Fault::FrameUnexpected),
        (&[1, 0, 7, 1, 0], Fault::FrameUnexpected),
        (&[1, 0, 6, 0], Fault::FrameUnexpected),
        (&[1, 0x40, 101], Fault::TooLong),
        (&[1], Fault::FrameMalformed),
        (&[1, 0, 0, 3, 1], Fault::FrameMalformed),
        (&[1, 0, 0, 0x40], Fault::FrameMalformed),
        (&[], Fault::Incomplete),
        (&[0x21, 0], Fault::Incomplete),
    ] {
        assert_eq!(said(Of::Message, stream).pop(), Some(Said::Fault(fault)), "{stream:?}");
    }
    for (stream, fault) in [
        (&[7, 1, 0][..], Fault::NoSettings),
        (&[4, 0, 4, 0], Fault::FrameUnexpected),
        (&[4, 0, 0, 0], Fault::FrameUnexpected),
        (&[4, 0, 1, 0], Fault::FrameUnexpected),
        (&[4, 0, 8, 0], Fault::FrameUnexpected),
        (&[4, 0, 7, 2, 0, 0], Fault::FrameMalformed),
        (&[4, 0, 3, 1, 0], Fault::BadId),
        (&[4, 0x50, 0], Fault::TooLong),
    ] {
        assert_eq!(said(Of::Control, stream).pop(), Some(Said::Fault(fault)), "{stream:?}");
    }
    // MAX_PUSH_ID concerns nobody.
    let fine = [4, 2, 6, 9, 13, 1, 0, 0x21, 1, 0, 7, 1, 8];
    assert_eq!(said(Of::Control, &fine), [Said::Settings(vec![6, 9]), Said::GoAway(8)]);
    assert_eq!(Reader::new(Of::Control, 0).end(), Err(Fault::CriticalStreamEnded));
}

#[test]
fn an_interim_head_is_before_another() {
    let (mut reader, stream) = (Reader::new(Of::Message, 100), [1, 1, b'a', 1, 1, b'b', 1, 1, b'c']);
    assert_eq!(reader.next(&stream), Ok((3, Some(Event::Head(b"a")))));
    reader.interim();
    assert_eq!(reader.next(&stream[3..]), Ok((3, Some(Event::Head(b"b")))));
    assert_eq!(reader.next(&stream[6..]), Ok((3, Some(Event::Trailers(b"c")))));
    reader.renew();
    assert_eq!(reader.next(&stream), Ok((3, Some(Event::Head(b"a")))));
}

#[test]
fn a_server_says_where_it_ends() {
    let mut stream = vec![4, 0];
    stream.extend(go_away(1 << 20));
    assert_eq!(said(Of::Control, &stream), [Said::Settings(vec![]), Said::GoAway(1 << 20)]);
}
