//! The published vectors, and equality of all forms on random input from a fixed seed.

use super::*;
use crate::random::Random;

/// Destination, its port, source, its port, hash of the addresses, hash with ports ("Verifying the RSS hash
/// calculation", Microsoft).
type Vector4 = ([u8; 4], u16, [u8; 4], u16, u32, u32);
const VECTORS_V4: [Vector4; 5] = [
    ([161, 142, 100, 80], 1766, [66, 9, 149, 187], 2794, 0x323e_8fc2, 0x51cc_c178),
    ([65, 69, 140, 83], 4739, [199, 92, 111, 2], 14230, 0xd718_262a, 0xc626_b0ea),
    ([12, 22, 207, 184], 38024, [24, 19, 198, 95], 12898, 0xd2d0_a5de, 0x5c2b_394a),
    ([209, 142, 163, 6], 2217, [38, 27, 205, 30], 48228, 0x8298_9176, 0xafc7_327f),
    ([202, 188, 127, 2], 1303, [153, 39, 163, 191], 44251, 0x5d18_09c5, 0x10e8_28a2),
];
const VECTORS_V6: [(&str, u16, &str, u16, u32, u32); 3] = [
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
    (
        "fe80::200:f8ff:fe21:67cf",
        38024,
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        0x4b61_e985,
        0x02d1_feef,
    ),
];

/// One hasher per form that this processor has.
fn hashers(key: &Key) -> Vec<Toeplitz> {
    Form::ALL.iter().filter_map(|&form| Toeplitz::with_form(key, form)).collect()
}

#[test]
fn published_vectors() {
    for hasher in hashers(&Key::MICROSOFT) {
        for (dst, dst_port, src, src_port, addresses, with_ports) in VECTORS_V4 {
            let (src, dst) = (src.into(), dst.into());
            assert_eq!(hasher.hash_v4(src, dst), addresses, "{:?}", hasher.form());
            assert_eq!(hasher.hash_v4_ports(src, dst, src_port, dst_port), with_ports, "{:?}", hasher.form());
        }
        for (dst, dst_port, src, src_port, addresses, with_ports) in VECTORS_V6 {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(hasher.hash_v6(src, dst), addresses, "{:?}", hasher.form());
            assert_eq!(hasher.hash_v6_ports(src, dst, src_port, dst_port), with_ports, "{:?}", hasher.form());
        }
    }
}

#[test]
fn the_other_direction_differs_unless_the_key_is_symmetric() {
    let reverse = [0xfde7_99b2_u32, 0xe53c_74e8, 0xa802_b849, 0xe1df_cdff, 0x15d0_5e13];
    let hasher = Toeplitz::new(&Key::MICROSOFT);
    let symmetric = Toeplitz::new(&Key::symmetric());
    for ((dst, dst_port, src, src_port, ..), expected) in VECTORS_V4.into_iter().zip(reverse) {
        let (src, dst) = (src.into(), dst.into());
        assert_eq!(hasher.hash_v4_ports(dst, src, dst_port, src_port), expected);
        assert_eq!(
            symmetric.hash_v4_ports(dst, src, dst_port, src_port),
            symmetric.hash_v4_ports(src, dst, src_port, dst_port)
        );
    }
    assert_eq!(hasher.hash_v4([161, 142, 100, 80].into(), [66, 9, 149, 187].into()), 0xba45_587e);
}

#[test]
fn every_form_agrees_for_every_key_length() {
    let mut random = Random::new(1);
    for len in 16..=52 {
        let key = Key::new(&random.bytes::<52>()[..len]).unwrap();
        let hashers = hashers(&key);
        for _ in 0..40 {
            let data: [u8; 64] = random.bytes();
            for n in 0..=64 {
                let expected = bitwise::hash(&key, &data[..n]);
                for hasher in &hashers {
                    assert_eq!(hasher.hash(&data[..n]), expected, "{:?}, key {len}, data {n}", hasher.form());
                }
            }
        }
    }
}

#[test]
fn fields_equal_bytes() {
    let mut random = Random::new(2);
    for _ in 0..500 {
        let key = Key::random(|bytes| random.fill(bytes));
        let (a, b): ([u8; 16], [u8; 16]) = (random.bytes(), random.bytes());
        let (p, q) = (random.next() as u16, random.next() as u16);
        let v6 = [&a[..], &b, &p.to_be_bytes(), &q.to_be_bytes()].concat();
        let v4 = [&a[..4], &b[..4], &p.to_be_bytes(), &q.to_be_bytes()].concat();
        let (a4, b4) = ([a[0], a[1], a[2], a[3]].into(), [b[0], b[1], b[2], b[3]].into());
        for hasher in hashers(&key) {
            assert_eq!(hasher.hash_v6_ports(a.into(), b.into(), p, q), bitwise::hash(&key, &v6));
            assert_eq!(hasher.hash_v6(a.into(), b.into()), bitwise::hash(&key, &v6[..32]));
            assert_eq!(hasher.hash_v4_ports(a4, b4, p, q), bitwise::hash(&key, &v4));
            assert_eq!(hasher.hash_v4(a4, b4), bitwise::hash(&key, &v4[..8]));
        }
    }
}

#[test]
fn batches_of_every_length_agree() {
    let mut random = Random::new(3);
    for len in [16, 23, 40, 52] {
        let key = Key::new(&random.bytes::<52>()[..len]).unwrap();
        for n in (0..=70).chain([1024]) {
            let v4: Vec<[u8; 12]> = (0..n).map(|_| random.bytes()).collect();
            let v6: Vec<[u8; 36]> = (0..n).map(|_| random.bytes()).collect();
            let src: Vec<[u8; 4]> = v4.iter().map(|t| [t[0], t[1], t[2], t[3]]).collect();
            let dst: Vec<[u8; 4]> = v4.iter().map(|t| [t[4], t[5], t[6], t[7]]).collect();
            let src_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[8], t[9]]).collect();
            let dst_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[10], t[11]]).collect();
            let columns = Columns4 { src: &src, dst: &dst, src_port: &src_port, dst_port: &dst_port };
            let expected4: Vec<u32> = v4.iter().map(|t| bitwise::hash(&key, t)).collect();
            let expected6: Vec<u32> = v6.iter().map(|t| bitwise::hash(&key, t)).collect();
            for hasher in hashers(&key) {
                let mut out = vec![0; n];
                hasher.batch12(&v4, &mut out);
                assert_eq!(out, expected4, "{:?} batch12 of {n}", hasher.form());
                hasher.batch36(&v6, &mut out);
                assert_eq!(out, expected6, "{:?} batch36 of {n}", hasher.form());
                hasher.columns4(columns, &mut out);
                assert_eq!(out, expected4, "{:?} columns4 of {n}", hasher.form());
            }
        }
    }
}

#[test]
#[should_panic(expected = "as many hashes as tuples")]
fn a_batch_of_another_length_is_refused() {
    Toeplitz::new(&Key::MICROSOFT).batch12(&[[0; 12]; 3], &mut [0; 2]);
}
