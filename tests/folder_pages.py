"""Small folders of pictures and PDFs, as a user has them, made by hand for the tests."""

import json

from PIL import Image, ImageDraw, ImageFont

LINES = ("ACME Ltd", "Date 03/02/2024", "Total 12.50")
SIZE = (300, 200)


def picture(lines=LINES, size=SIZE):
    """Returns a page with lines of print, 40 pixels apart."""
    page = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(24)
    for row, line in enumerate(lines):
        pen.text((20, 20 + 40 * row), line, fill="black", font=font)
    return page


def save(page, path, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path, **more)


def pdf(pages=(LINES,), size=(300, 200), rotate=0, encrypted=False):
    """Returns a PDF of 72 points an inch; each page has lines in Helvetica of 12 points.

    A line begins 20 points from the left, and stands 40 points below the one before it.
    """
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b""]
    objects[2] = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    kids = []
    for lines in pages:
        text = "".join(
            f"BT /F1 12 Tf 20 {size[1] - 40 - 40 * row} Td ({line}) Tj ET\n"
            for row, line in enumerate(lines)
        ).encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text))
        contents = len(objects)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Rotate %d /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (*size, rotate, contents)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    trailer = b""
    if encrypted:
        hashed = b"<" + b"ab" * 32 + b">"
        objects.append(b"<< /Filter /Standard /V 1 /R 2 /O %s /U %s /P -4 >>" % (hashed, hashed))
        trailer = b" /Encrypt %d 0 R /ID [<00> <00>]" % len(objects)
    content, offsets = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(content)
    content += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    content += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    content += b"trailer\n<< /Size %d /Root 1 0 R%s >>\n" % (len(objects) + 1, trailer)
    return content + b"startxref\n%d\n%%%%EOF" % start


BRANCHES = ("Zürich West", "north", "south", "east (old)", "west", "Bern, [neu]")


def branches(root, companies=13, receipts=40):
    """Writes receipts of companies into a folder for each branch; the first company is at two."""
    rows = ["file,company,date,total"]
    for number in range(receipts):
        company = number % companies
        branch = BRANCHES[3 if number == companies else company % len(BRANCHES)]
        texts = f"Firm {chr(65 + company)}", f"{number % 28 + 1:02}/03/2024", f"{number + 10}.50"
        save(picture(texts), root / branch / f"{number}.png")
        words = [
            {"text": word, "box": [20 + 90 * at, 20 + 40 * row, 100 + 90 * at, 45 + 40 * row],
             "line": row}
            for row, text in enumerate(texts)
            for at, word in enumerate(text.split())
        ]  # fmt: skip
        side = json.dumps({"size": SIZE, "words": words})
        (root / branch / f"{number}.json").write_text(side)
        rows.append(f'"{branch}/{number}.png",{",".join(texts)}')
    (root / "labels.csv").write_text("\n".join(rows), "utf-8")


# The same page in each format: "ACME Ltd" in one line, "12.50" in another, on 300 × 200 pixels.

OURS = {
    "size": [300, 200],
    "words": [
        {"text": "ACME", "box": [20, 20, 80, 40], "line": 0},
        {"text": "Ltd", "box": [90, 20, 120, 40], "line": 0},
        {"text": "12.50", "box": [20, 60, 80, 80], "line": 1},
    ],
}


def _doctr_word(text, left, top, right, bottom):
    corners = [[left / 300, top / 200], [right / 300, bottom / 200]]
    return {"value": text, "confidence": 0.9, "geometry": corners}


DOCTR = {
    "pages": [
        {
            "page_idx": 0,
            "dimensions": [200, 300],
            "blocks": [
                {
                    "lines": [
                        {
                            "words": [
                                _doctr_word("ACME", 20, 20, 80, 40),
                                _doctr_word("Ltd", 90, 20, 120, 40),
                            ]
                        },
                        {"words": [_doctr_word("12.50", 20, 60, 80, 80)]},
                    ]
                }
            ],
        }
    ]
}


def _block(kind, name, text="", box=(0, 0, 300, 200), children=()):
    left, top, right, bottom = box
    sides = {
        "Left": left / 300,
        "Top": top / 200,
        "Width": (right - left) / 300,
        "Height": (bottom - top) / 200,
    }
    block = {"BlockType": kind, "Id": name, "Geometry": {"BoundingBox": sides}}
    if text:
        block["Text"] = text
    if children:
        block["Relationships"] = [{"Type": "CHILD", "Ids": list(children)}]
    return block


TEXTRACT = {
    "DocumentMetadata": {"Pages": 1},
    "Blocks": [
        _block("PAGE", "p", children=("l1", "l2")),
        _block("LINE", "l1", "ACME Ltd", (20, 20, 120, 40), ("w1", "w2")),
        _block("LINE", "l2", "12.50", (20, 60, 80, 80), ("w3",)),
        _block("WORD", "w1", "ACME", (20, 20, 80, 40)),
        _block("WORD", "w2", "Ltd", (90, 20, 120, 40)),
        _block("WORD", "w3", "12.50", (20, 60, 80, 80)),
    ],
}

HOCR = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title></title></head><body>
<div class='ocr_page' id='page_1' title='image "a.png"; bbox 0 0 300 200; ppageno 0'>
 <span class='ocr_line' title="bbox 20 20 120 40; baseline 0 0">
  <span class='ocrx_word' title='bbox 20 20 80 40; x_wconf 96'><strong>ACME</strong></span>
  <span class='ocrx_word' title='bbox 90 20 120 40; x_wconf 93'>Ltd</span>
 </span>
 <span class='ocr_line' title="bbox 20 60 80 80">
  <span class='ocrx_word' title='bbox 20 60 80 80; x_wconf 96'>12.50</span>
 </span>
</div></body></html>"""

ALTO = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">
 <Description><MeasurementUnit>mm10</MeasurementUnit></Description>
 <Layout><Page ID="p1" WIDTH="600" HEIGHT="400"><PrintSpace><TextBlock>
  <TextLine><String CONTENT="ACME" HPOS="40" VPOS="40" WIDTH="120" HEIGHT="40"/><SP/>
   <String CONTENT="Ltd" HPOS="180" VPOS="40" WIDTH="60" HEIGHT="40"/></TextLine>
  <TextLine><String CONTENT="12.50" HPOS="40" VPOS="120" WIDTH="120" HEIGHT="40"/></TextLine>
 </TextBlock></PrintSpace></Page></Layout></alto>"""

SIDES = {"ours": OURS, "doctr": DOCTR, "textract": TEXTRACT, "hocr": HOCR, "alto": ALTO}
