"""Small folders in the layouts of the form readers, written by hand for the tests."""

import json

from PIL import Image

SIZE = (100, 200)
CLASSES = [
    "Ignore",
    "Store_name_value",
    "Store_name_key",
    "Store_addr_value",
    "Store_addr_key",
    "Tel_value",
    "Tel_key",
    "Date_value",
    "Date_key",
    "Time_value",
    "Time_key",
    "Prod_item_value",
    "Prod_item_key",
    "Prod_quantity_value",
    "Prod_quantity_key",
    "Prod_price_value",
    "Prod_price_key",
    "Subtotal_value",
    "Subtotal_key",
    "Tax_value",
    "Tax_key",
    "Tips_value",
    "Tips_key",
    "Total_value",
    "Total_key",
    "Others",
]


def write(path, content):
    """Writes text, bytes, or anything else as JSON; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")


def write_image(path, size=SIZE):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 200).save(path)


# ----------------------------------------------------------------------------------------- CORD


def quad(x0, y0, x1, y1):
    return {"x1": x0, "y1": y0, "x2": x1, "y2": y0, "x3": x1, "y3": y1, "x4": x0, "y4": y1}


def cord_line(category, *words):
    """A line of `valid_line`; `words` are (text, quad) pairs."""
    found = [{"quad": q, "text": text, "is_key": 0, "row_id": 1} for text, q in words]
    return {"words": found, "category": category, "group_id": 1, "sub_group_id": 0}


def cord_receipt(*lines, size=SIZE):
    meta = {"version": "2.0.0", "split": "train", "image_id": 0}
    if size:
        meta["image_size"] = {"width": size[0], "height": size[1]}
    return {"gt_parse": {}, "meta": meta, "valid_line": list(lines), "roi": {}, "dontcare": []}


CORD_RECEIPT = cord_receipt(
    cord_line("menu.nm", ("ES", quad(10, 20, 30, 28)), ("TEH", quad(32, 20, 60, 28))),
    cord_line("total.total_price", ("9,000", quad(70, 40, 99, 48))),
)


def write_cord(root, stem="receipt_00000", split="train", content=CORD_RECEIPT, image=SIZE):
    write(root / split / "json" / f"{stem}.json", content)
    if image:
        write_image(root / split / "image" / f"{stem}.png", image)


# ---------------------------------------------------------------------------------------- XFUND


def xfund_item(label, text, box, words=(), number=1, linking=()):
    words = [{"text": word, "box": list(place)} for word, place in words]
    pairs = [list(pair) for pair in linking]
    item = {"id": number, "label": label, "text": text, "box": list(box), "linking": pairs}
    return {**item, "words": words}


XFUND_ITEMS = (
    xfund_item("question", "名 前", (10, 20, 40, 30), [("名", (10, 20, 25, 30))]),
    xfund_item("answer", "A BC", (40, 20, 80, 30)),
)


def xfund_form(name="zh_train_0", items=XFUND_ITEMS, size=SIZE, fname=None):
    img = {"fname": fname or f"{name}.jpg", "width": size[0], "height": size[1]}
    return {"id": name, "uid": "0", "document": list(items), "img": img}


def write_xfund(root, forms, split="train", language="zh", image=SIZE):
    """Writes the file of one split and an image for every form that names one plainly."""
    content = forms if isinstance(forms, str) else {"lang": language, "documents": forms}
    write(root / f"{language}.{split}.json", content)
    for form in () if isinstance(forms, str) else forms:
        write_image(root / "images" / form["img"]["fname"], image)


# ---------------------------------------------------------------------------------- WildReceipt


def wild_line(label, text, box=(10, 20, 50, 20, 50, 30, 10, 30)):
    """A text line; `label` is the name of a class."""
    return {"box": list(box), "text": text, "label": CLASSES.index(label)}


WILD_LINES = (
    wild_line("Store_name_value", "Café No. 1"),
    wild_line("Total_value", "4.50", (60, 50, 90, 50, 90, 60, 60, 60)),
)


def wild_receipt(name="image_files/Image_1/1/a.jpeg", lines=WILD_LINES, size=SIZE):
    sides = {"height": size[1], "width": size[0]}
    return {"file_name": name, **sides, "annotations": list(lines)}


def write_wildreceipt(root, receipts, split="train", numbered=True, image=SIZE):
    """Writes one split; `receipts` are objects, or lines as they shall stand in the file."""
    rows = [row if isinstance(row, str) else json.dumps(row) for row in receipts]
    write(root / f"{split}.txt", "\n".join(rows) + "\n")
    names = [f"{number} {name}" if numbered else name for number, name in enumerate(CLASSES)]
    write(root / "class_list.txt", "\n".join(names) + "\n")
    for row in receipts:
        if not isinstance(row, str):
            write_image(root / row["file_name"], image)


# --------------------------------------------------------------------------------------- DocILE


def docile_field(fieldtype, box, text="", page=0):
    return {"bbox": list(box), "fieldtype": fieldtype, "page": page, "text": text}


def docile_annotation(fields=(), items=(), pages=1, cluster=7):
    meta = {"cluster_id": cluster, "page_count": pages}
    meta["page_sizes_at_200dpi"] = [[278, 556]] * pages
    extractions = {"field_extractions": list(fields), "line_item_extractions": list(items)}
    return {**extractions, "line_item_headers": [], "metadata": meta}


def docile_text(*pages):
    """An OCR file; a page is a list of lines, a line a list of (text, (l, t, r, b)) pairs."""

    def word(text, box):
        return {"value": text, "confidence": 0.9, "geometry": [list(box[:2]), list(box[2:])]}

    def sheet(lines):
        rows = [{"words": [word(*pair) for pair in line]} for line in lines]
        return {"dimensions": [200, 100], "blocks": [{"lines": rows}]}

    return {"pages": [sheet(lines) for lines in pages]}


DOCILE_TEXT = docile_text([[("ACME", (0.1, 0.1, 0.3, 0.15)), ("Ltd.", (0.35, 0.1, 0.5, 0.15))]])
DOCILE_ANNOTATION = docile_annotation(
    [docile_field("vendor_name", (0.1, 0.1, 0.5, 0.15), "Acme Ltd.")]
)


def write_docile(
    root, name="d1", split="train", annotation=DOCILE_ANNOTATION, text=DOCILE_TEXT, pages=1
):
    """Writes one document and puts it on the split's list; `pages` of the PDF, 0 for none."""
    path = root / f"{split}.json"
    names = json.loads(path.read_text()) if path.exists() else []
    write(path, [*names, name])
    write(root / "annotations" / f"{name}.json", annotation)
    write(root / "ocr" / f"{name}.json", text)
    if pages:
        sheets = [Image.new("L", SIZE, 200 - 50 * number) for number in range(pages)]
        path = root / "pdfs" / f"{name}.pdf"
        path.parent.mkdir(exist_ok=True)
        sheets[0].save(path, save_all=True, append_images=sheets[1:], resolution=72)


# -------------------------------------------------------------------------------- FUNSD and SROIE

FUNSD_ITEM = {
    "id": 0,
    "text": "Date:",
    "box": [10, 20, 30, 28],
    "label": "question",
    "words": [{"text": "Date:", "box": [10, 20, 30, 28]}],
    "linking": [],
}


def write_funsd(root, stem="1", content=None):
    base = root / "dataset" / "training_data"
    write(base / "annotations" / f"{stem}.json", content or {"form": [FUNSD_ITEM]})
    write_image(base / "images" / f"{stem}.png")


SROIE_BOXES = "10,20,50,20,50,30,10,30,AB CD\n10,40,50,40,50,50,10,50,9.00\n"
SROIE_KEYS = {"company": "AB CD", "date": "1/2/2018", "address": "1 ROAD", "total": "9.00"}


def write_sroie(root, stem="X1", boxes=SROIE_BOXES, keys=SROIE_KEYS, split="train"):
    write(root / split / "box" / f"{stem}.txt", boxes)
    write(root / split / "entities" / f"{stem}.txt", keys)
    write_image(root / split / "img" / f"{stem}.jpg")
