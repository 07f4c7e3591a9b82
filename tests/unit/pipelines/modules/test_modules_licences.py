"""Licences: what people write as SPDX, what licence files hold, and what kind each is."""

from __future__ import annotations

from typing import Any

import pytest

from weft.pipelines.builtin.modules.analysis import licences

GRANT = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and so on."
NOTICE = "The above copyright notice and this permission notice shall be included in all copies."
USE = "Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is granted"
KEPT = "provided that the above copyright notice and this permission notice appear in all copies"
BSD = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that"
ENDORSE = "Neither the name of the holder nor the names of its contributors may be used to endorse or promote products"


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("The MIT License", "MIT"),
        ({"type": "MIT", "url": "https://example.org"}, "MIT"),
        ([{"type": "MIT"}, {"type": "Apache-2.0"}], "MIT OR Apache-2.0"),
        ({"text": "BSD-3-Clause"}, "BSD-3-Clause"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache 2.0", "Apache-2.0"),
        ("GPLv3", "GPL-3.0-only"),
        ("GPL-3.0", "GPL-3.0-only"),
        ("GPL-3.0+", "GPL-3.0-or-later"),
        ("gpl-2.0-or-later", "GPL-2.0-or-later"),
        ("GNU General Public License v3 or later (GPLv3+)", "GPL-3.0-or-later"),
        ("LGPL-2.1", "LGPL-2.1-only"),
        ("(MIT OR Apache-2.0)", "(MIT OR Apache-2.0)"),
        ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("SEE LICENSE IN LICENSE", None),
        ("LicenseRef-mine", None),
        ("UNLICENSED", None),
        ("(" * 150, None),
        ("MIT OR", None),
        ("x" * 5_000, None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_what_is_said_becomes_spdx_or_nothing(said: Any, expression: str | None) -> None:
    assert licences.spdx(said) == expression


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("MIT", licences.PERMISSIVE),
        ("0BSD", licences.PUBLIC_DOMAIN),
        ("GPL-3.0-only", licences.COPYLEFT),
        ("LGPL-2.1-only", licences.WEAK_COPYLEFT),
        ("AGPL-3.0-or-later", licences.NETWORK_COPYLEFT),
        ("CC-BY-NC-4.0", licences.NON_COMMERCIAL),
        ("BUSL-1.1", licences.PROPRIETARY),
        ("MIT OR GPL-3.0-only", licences.PERMISSIVE),
        ("MIT AND GPL-3.0-only", licences.COPYLEFT),
        ("(MIT OR GPL-3.0-only) AND AGPL-3.0-only", licences.NETWORK_COPYLEFT),
        ("MIT OR GPL-3.0-only AND AGPL-3.0-only", licences.PERMISSIVE),
        ("GPL-2.0-only WITH Classpath-exception-2.0", licences.COPYLEFT),
        ("Frameworx-1.0", licences.UNKNOWN),
        ("MIT AND Frameworx-1.0", licences.UNKNOWN),
        (None, licences.UNKNOWN),
    ],
)
def test_a_choice_is_judged_by_its_freest_part_and_a_sum_by_its_strictest(expression: str, verdict: str) -> None:
    assert licences.judged(expression) == verdict


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (f"MIT License\n\nCopyright (c) 2020 A\n\n{GRANT}\n{NOTICE}", "MIT"),
        (f"Copyright (c) 2020 A\n\n{GRANT}", "MIT-0"),
        (f"ISC License\n{USE}, {KEPT}.", "ISC"),
        (f"{USE}.", "0BSD"),
        (f"{BSD} …\n{ENDORSE}", "BSD-3-Clause"),
        (f"{BSD} …", "BSD-2-Clause"),
        ("   GNU GENERAL PUBLIC LICENSE\n      Version 3, 29 June 2007", "GPL-3.0-only"),
        ("GNU GENERAL PUBLIC LICENSE\nVersion 2, June 1991", "GPL-2.0-only"),
        ("GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3, 19 November 2007", "AGPL-3.0-only"),
        ("GNU LESSER GENERAL PUBLIC LICENSE\nVersion 3", "LGPL-3.0-only"),
        ("Apache License\nVersion 2.0, January 2004", "Apache-2.0"),
        ("# Apache License, Version 2.0", "Apache-2.0"),
        ("Mozilla Public License Version 2.0", "MPL-2.0"),
        ("This is free and unencumbered software released into the public domain.", "Unlicense"),
        ("All rights reserved.", None),
        ("", None),
    ],
)
def test_a_licence_file_is_known_by_its_text(text: str, expression: str | None) -> None:
    assert licences.of_text(text) == expression


def test_a_file_agrees_with_a_manifest_that_names_it_among_others() -> None:
    assert licences.agree("GPL-3.0-or-later", "GPL-3.0-only")
    assert licences.agree("(MIT OR Apache-2.0)", "Apache-2.0")
    assert not licences.agree("MIT", "GPL-3.0-only")
