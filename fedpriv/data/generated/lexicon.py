"""Word lists and patterns from which the generated invoices are made.

In a pattern, ``#`` stands for a random digit and ``@`` for a random capital letter; everything
else is printed as it is. No caption, title or note holds a digit or a word of a company's name, so
that a page with its private values blanked shows none of them by accident.
"""

from __future__ import annotations

from collections.abc import Mapping


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Words of at most eight letters: a company's e-mail address must fit half of a page's width.
COMPANY_FIRST: tuple[str, ...] = _words(
    """
    Abbot Acorn Alder Almond Altair Amber Anchor Anvil Apex Arbor Argent Ashby Aspen Aster Atlas
    Auburn Aurora Avon Azure Badger Balmer Barley Basalt Beacon Belmont Birch Bishop Bramble
    Brent Briar Bristow Brook Burton Calder Calyx Canter Carbon Cardinal Carver Castor Cedar
    Celtic Chalk Clarion Cobalt Colby Comet Copper Coral Corbel Crane Crescent Cypress Dalton
    Darrow Delta Denham Dorset Drake Eagle Easton Ebony Elder Elm Ember Emerald Equinox Falcon
    Fenwick Fern Finch Flint Forge Foster Foxglove Galena Garnet Gilbert Glacier Granite Grove
    Gulf Harbor Harrow Hawthorn Hazel Heron Hickory Holm Horizon Huxley Indigo Iris Ivory Jasper
    Juniper Kestrel Keystone Kingsley Lantern Larch Larkin Laurel Linden Lotus Lupin Magnet
    Mallard Maple Marble Marlow Meadow Mercer Meridian Merlin Mistral Monarch Mulberry Nimbus
    Norfolk Oakley Obsidian Olive Onyx Orbit Orchard Osprey Otter Palmer Pebble Pelican Perch
    Pinnacle Pioneer Poplar Prism Quarry Quartz Quill Raven Redwood Ridge Robin Rowan Sable
    Saffron Sequoia Sierra Silver Solstice Sparrow Spruce Sterling Summit Tamarind Tern Thistle
    Timber Topaz Trident Tulip Umber Valley Vega Vertex Walnut Warwick Willow Winslow Yarrow
    Zenith Zephyr
    """
)

COMPANY_SECOND: tuple[str, ...] = _words(
    """
    Advisers Aero Agency Analytic Apparel Archives Audio Auto Bakery Bikes Biotech Boats Books
    Brewing Bricks Builders Cabinets Cameras Capital Catering Ceramics Chemical Cinema Cleaning
    Clinics Clothing Coaches Coatings Coffee Comms Concrete Controls Couriers Cycles Dairy
    Data Decor Dental Design Digital Dynamics Electric Energy Engines Estates Events Express
    Fabrics Farms Fencing Finance Fittings Flooring Flowers Foods Forestry Freight Fuels
    Gardens Gas Glass Goods Grain Graphics Haulage Health Heating Homes Hotels Imports Inks
    Interior Joinery Labs Lasers Laundry Leasing Legal Lifts Lighting Linen Loans Lumber Machines
    Marine Markets Masonry Media Metals Mills Mining Mobility Models Motors Music Networks Optics
    Outdoors Packing Painting Paper Partners Pharma Photo Pipes Planning Plants Plastics Plumbing
    Pottery Power Press Printing Produce Pumps Radio Rail Realty Records Robotics Roofing
    Sailing Seeds Sensors Shipping Signs Software Solar Sports Stone Storage Studio Supply Systems
    Tailors Telecom Textiles Tiles Tools Towing Toys Trading Training Travel Vending Ventures
    Water Welding Windows Wines Wireless Works Yachts
    """
)

COMPANY_FORM: tuple[str, ...] = (
    *("", "Ltd", "GmbH", "Inc", "BV", "SRL", "SA", "AB", "AS", "Oy", "ApS"),
    *("LLC", "Corp", "Group", "Bros", "SL", "Lda", "KG", "AG", "SpA"),
)

# One mailbox per legal form: two companies that differ in the form alone differ in the address.
MAILBOXES: tuple[str, ...] = (
    *("info", "sales", "post", "mail", "bills", "desk", "admin", "hello", "shop", "ask"),
    *("pay", "orders", "team", "main", "care", "cash", "home", "help", "work", "dept"),
)

STREETS: tuple[str, ...] = _words(
    """
    Abbey Albion Bridge Bell Canal Castle Chapel Cherry Church Cross Dale Duke East Ferry Field
    Garden Gate Green Hall Harvest High Hill Hunter Jubilee King Lake Lime London Long Manor
    Market Mill Mint Moor North Oak Park Pine Pond Priory Queen River Rose Saddler School Spring
    Station Temple Tower Union Victoria Vine Water Weaver Wells West Wharf Wood York
    """
)

STREET_KINDS: tuple[str, ...] = ("Street", "Road", "Lane", "Avenue", "Way", "Square", "Court")

CITIES: tuple[str, ...] = _words(
    """
    Aldford Ambleton Ashmere Barnwick Bexham Blackfen Bramford Brightsea Caldbeck Carrow Chelwood
    Claymouth Coldbrook Cranleigh Darnwell Deepdale Dunmore Eastmere Eldham Farleigh Fordham
    Glenmore Graymouth Halewick Harbury Hartsea Hollowby Ingleton Kelmouth Kingsmere Lakeham
    Langford Lynmere Marshton Melbury Millbrook Moorfield Newhaven Norbury Northsea Oakhurst
    Otterton Penwick Portland Quarley Ravenby Redmere Ringwood Rosedale Rushden Saltley Seaford
    Selwick Silverby Southmere Stanmore Stonebury Sutterby Thornby Tidemouth Upwell Wallingby
    Waverton Westhaven Whitby Wickmere Windham Woodbury Wyeford Yelverby
    """
)

POSTCODES: tuple[str, ...] = ("#####", "@@# #@@", "#### @@", "##-###", "@#@ #@#", "### ##", "@@##")

PHONES: tuple[str, ...] = (
    *("+4# ## #### ####", "(###) ###-####", "0### ######", "+1 ### ### ####", "###.###.####"),
    *("+3# # ## ## ## ##", "0## / ### ## ##", "+4###-######"),
)

TAX_NUMBERS: tuple[str, ...] = (
    *("GB#########", "DE#########", "##-#######", "###-###-###", "FR##########", "NL#########B##"),
    *("ATU########", "## ### ### ###"),
)

REGISTRATION_IDS: tuple[str, ...] = (
    *("HRB #####", "########", "RC-######", "C#######", "@@######", "B ### ###", "##/####"),
    "####-####",
)

# {year} and {serial} are filled in; the serial number counts the provider's invoices.
INVOICE_NUMBERS: tuple[str, ...] = (
    *(
        "INV-{serial:05}",
        "{year}-{serial:05}",
        "{serial:06}",
        "A{serial:05}",
        "R{year}/{serial:05}",
    ),
    *("{serial:05}-{year}", "No{serial:05}", "F-{serial:06}", "{serial:07}"),
)

MONTHS: tuple[str, ...] = _words(
    "January February March April May June July August September October November December"
)

# {month} is the number, {short} three letters, {long} the whole name.
DATES: tuple[str, ...] = (
    *("{day:02}/{month:02}/{year}", "{year}-{month:02}-{day:02}", "{day:02}.{month:02}.{year}"),
    *("{day} {short} {year}", "{short} {day}, {year}", "{day:02}-{short}-{year}"),
    *("{long} {day}, {year}", "{day} {long} {year}", "{year}/{month:02}/{day:02}"),
)

# How an amount with its currency is printed, the thousands separator and the decimal mark.
CURRENCIES: tuple[tuple[str, str, str], ...] = (
    *(("${}", ",", "."), ("€{}", ",", "."), ("£{}", ",", "."), ("{} €", ".", ",")),
    *(("EUR {}", ".", ","), ("USD {}", ",", "."), ("CHF {}", "'", "."), ("{} kr", "", ",")),
)

GIVEN_NAMES: tuple[str, ...] = _words(
    """
    Ada Adam Agnes Alan Alice Amir Anna Arthur Bella Bruno Carla Cecil Chloe Clara Colin Dana
    David Diana Edith Elena Emil Erik Esther Farid Felix Fiona Frank Greta Hanna Harold Helen
    Hugo Ines Irene Isaac Ivan Jane Jonas Julia Karin Kevin Laura Leila Leo Linda Lucas Mabel
    Marco Maria Martin Maya Milan Nadia Nina Noah Nora Oscar Paula Peter Priya Ralph Rosa Ruth
    Samuel Sarah Simon Sofia Stefan Tariq Teresa Thomas Tomas Ursula Vera Victor Wanda Yusuf Zoe
    """
)

FAMILY_NAMES: tuple[str, ...] = _words(
    """
    Adeyemi Alvarez Andersen Baker Banerjee Becker Bergman Bianchi Booth Brandt Brennan Carlsen
    Chandra Conti Costa Cooper Dawson Delgado Dubois Duran Eklund Evans Ferreira Fischer Fontana
    Fraser Garcia Gibson Gruber Haddad Hansen Harper Hoffman Holt Ibrahim Ivanov Janssen Jensen
    Kapoor Keller Kowalski Larsen Laurent Lehmann Lindgren Lopez Marino Martens Mendes Meyer
    Moreau Murphy Nakamura Nilsson Nguyen Novak Okafor Olsen Ortega Parker Pereira Petrov Quinn
    Ramirez Reid Ricci Romero Rossi Santos Sato Schmidt Shaw Silva Singh Sorensen Suzuki Tanaka
    Taylor Torres Varga Vogel Wagner Walsh Weber Whitfield Yilmaz Zhang Zimmer
    """
)

# What a provider sells: one trade each.
TRADES: tuple[tuple[str, ...], ...] = (
    ("Desk lamp", "Ceiling light", "Wall fixture", "Light switch", "Cable 10 m", "Fuse box"),
    ("Morning spot", "Evening spot", "News slot", "Weather slot", "Weekend slot", "Late film"),
    ("Copy paper", "Ink cartridge", "Ring binder", "Ball pens", "Envelopes", "Desk tray"),
    ("Site visit", "Soil survey", "Draft report", "Final report", "Map prints", "Field work"),
    ("Oak plank", "Pine board", "Wood screws", "Varnish 1 l", "Wood glue", "Sanding belt"),
    ("Apple crates", "Pear crates", "Flour 25 kg", "Sugar 10 kg", "Olive oil 5 l", "Dry yeast"),
    ("Server hosting", "Domain name", "Backup space", "Support hours", "User licence", "Setup"),
    ("Brake pads", "Oil change", "Tyre set", "Wheel check", "Air filter", "Spark plugs"),
    ("Room, one night", "Breakfast", "Meeting room", "Parking day", "Airport ride", "Late stay"),
    ("Window wash", "Carpet care", "Floor polish", "Waste pickup", "Night shift", "Hand soap"),
    ("Cement 25 kg", "Sand 1 t", "Red bricks", "Roof tiles", "Steel rods", "Gravel 1 t"),
    ("Eye test", "Reading lenses", "Metal frame", "Lens cloth", "Case", "Sun lenses"),
    ("Poster A2", "Flyer A5", "Leaflet fold", "Name cards", "Photo book", "Canvas print"),
    ("Rose bush", "Lawn seed 5 kg", "Hedge trim", "Potting soil", "Garden hose", "Bird bath"),
)

TITLES: tuple[str, ...] = (
    *("INVOICE", "Invoice", "TAX INVOICE", "Bill", "Sales invoice", "Account statement", "BILL"),
    "Commercial invoice",
)

# The captions that a provider may print for a field; none may be wider than 16 letters.
CAPTIONS: Mapping[str, tuple[str, ...]] = {
    "email": ("Email", "E-mail", "E", "Mail to", "Contact"),
    "phone": ("Phone", "Tel.", "T", "Call", "Telephone"),
    "tax_number": ("VAT no.", "Tax ID", "VAT reg.", "Tax number", "TIN"),
    "registration_id": ("Reg. no.", "Registration", "Reg. ID", "Register", "Trade reg."),
    "customer": ("Bill to", "Customer", "Sold to", "Invoiced to", "Client", "Recipient"),
    "invoice_number": ("Invoice no", "Inv #", "Bill number", "Invoice number", "Our ref.", "Ref."),
    "date": ("Date", "Invoice date", "Date of issue", "Issued on", "Bill date"),
    "due_date": ("Due date", "Delivery date", "Payment due", "Delivered on", "Pay by"),
    "subtotal": ("Subtotal", "Net", "Net amount", "Sum"),
    "tax": ("VAT", "Sales tax", "Tax", "GST"),
    "total": ("Total", "Total due", "Amount due", "Grand total", "TOTAL", "To pay"),
    "description": ("Description", "Item", "Article", "Details"),
    "quantity": ("Qty", "Quantity", "Units", "Pcs"),
    "price": ("Unit price", "Price", "Rate", "Each"),
    "amount": ("Amount", "Line total", "Value"),
}

NOTES: tuple[str, ...] = (
    *("Payment within one month, net.", "Thank you for your custom.", "Please pay on time."),
    *("Quote the number when you pay.", "Late payment bears interest.", "All prices are final."),
    *("No returns after two weeks.", "Ask us about a yearly contract.", "Please keep this page."),
    *("Sent without signature.", "Our general terms apply.", "We look forward to your reply."),
    *("Checked and approved.", "Errors and omissions excepted."),
)
