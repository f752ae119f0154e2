//! `lnk sandbox permissions`.

use testkit::each;

#[test]
fn every_key_is_listed_with_its_flag() {
    each!(|env| {
        let text = env.lnk(["sandbox", "permissions"]).run().ok().quiet().stdout;
        assert_eq!(text.lines().filter(|line| line.starts_with('[')).count(), 7, "{text}");
        let help = env.lnk(["sandbox", "run", "-h"]).run().ok().stdout;
        let flags: Vec<&str> =
            text.split_whitespace().filter(|word| word.starts_with("--")).collect();
        assert_eq!(flags.len(), 14, "{text}");
        for flag in flags {
            assert!(help.contains(&format!("{flag} <")), "{flag} in {help}");
        }
        assert!(text.contains("  write            --write PATH            Folders"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 115), "{text}");
    });
}

#[test]
fn as_json_it_is_an_array_with_an_object_for_each_key() {
    each!(|env| {
        let check = "import json, sys\n\
            keys = json.load(sys.stdin)\n\
            assert len(keys) == 14, keys\n\
            assert all(set(k) == {'section', 'key', 'type', 'default', 'flag', 'meaning', 'example'} for k in keys)\n\
            write, = [k for k in keys if k['section'] == 'files' and k['key'] == 'write']\n\
            print(write['flag'], write['type'], write['default'])";
        env.write("check.py", check);
        env.sh("lnk sandbox permissions --json | python3 check.py")
            .run()
            .ok()
            .quiet()
            .prints("--write a list of paths []\n");
    });
}
